-- Removals and copies, the fourth part of the script that redis.lua begins.

-- Forgets what is noted of this life of the thread, and keeps what tells how far the ones before went.
local function part(thread)
  call('UNLINK', touched)
  call('ZREM', tiers, thread)
  call('HDEL', tier, 'n', 'b', 'e', 'c', 'r', 'm')
end

-- Leaves a thread that has ended in the index until the cold store knows; what tells nothing of that goes in a while.
local function leave(thread)
  local born, ended = unpack(call('HMGET', tier, 'b', 'x'))
  if ended then
    call('PERSIST', tier)
    call('ZADD', index, math.floor(now() / 1000), thread)
  elseif not born then
    call('PEXPIRE', tier, DAY_MS)
  end
end

-- Notes that a thread has ended which is no more here. One that never had a row, nor all that the cold store has, told
-- nothing of that one's.
local function finish(thread)
  local born, ended, rows, whole_life = unpack(call('HMGET', tier, 'b', 'x', 'r', 'c'))
  part(thread)
  local over = math.max(ended or 0, (rows or whole_life == '1') and born or 0)
  if over > 0 then call('HSET', tier, 'x', whole(over)) end
  leave(thread)
end

local function discard(thread)
  call('UNLINK', meta, order, heads, data, writes)
  call('ZREM', index, thread)
end

-- KEYS: the eleventh is the index of the bucket's leases, the twelfth that of its cells. ARGV: thread, name of a list of
-- cells. Returns how many of the list there are, at most one.
if verb == 'drop' then
  call('UNLINK', lease)
  call('ZREM', KEYS[11], ARGV[2])
  discard(ARGV[2])
  if noted then finish(ARGV[2]) end
  return #call('ZRANGEBYLEX', KEYS[12], '[' .. ARGV[3], '(' .. ARGV[3] .. '\255', 'LIMIT', 0, 1)
end

-- ARGV: holder, owner, milliseconds that the lease lasts, token to renew or '', whether to steal (1), token to take the
-- lease from or '', what the holder tells, microseconds since its work went on, "=" and a control word or '', thread.
-- Decides as claims.py does, and returns the lease. The record of one that was given back stays for a day; after that
-- the clock alone keeps tokens rising.
if verb == 'claim' then
  local holder, owner, ttl_ms, token, steal, instead, about, idle_us, word, thread = unpack(ARGV, 2, 11)
  local stored = call('HMGET', lease, 'holder', 'owner', 'token', 'until', 'about', 'beat', 'progress', 'control')
  local held, owned, last, until_us, _, _, progress, control = unpack(stored)
  if not held then stored = false end
  if token ~= '' and token ~= last then return stored end
  if word ~= '' then
    stored[8] = sub(word, 2)
    call('HSET', lease, 'control', stored[8])
    return stored
  end
  local at = tonumber(now())
  local running = held and tonumber(until_us) > at
  local free = (not running or steal == '1') and (instead == '' or instead == last)
  if token ~= '' or (running and held == holder) then
    holder, owner, token = held, owned, last
    progress = math.max(progress or 0, at - idle_us)
    until_us = at + ttl_ms * 1000
    if ARGV[5] ~= '' and ttl_ms == '0' and (control or '') == '' then until_us = 0 end
  elseif free then
    token = whole(math.max(at, (last or 0) + 1))
    progress, until_us, control = at, at + ttl_ms * 1000, ''
  else
    return stored
  end
  local fields = { holder, owner, token, whole(until_us), about, whole(at), whole(progress), control or '' }
  call('HSET', lease, 'holder', holder, 'owner', owner, 'token', token, 'until', fields[4], 'about', about,
    'beat', fields[6], 'progress', fields[7], 'control', fields[8])
  if until_us == 0 then
    call('PEXPIRE', lease, DAY_MS)
    call('ZREM', KEYS[11], thread)
  else
    call('PEXPIRE', lease, ttl_ms + LOST_MS)
    call('ZADD', KEYS[11], fields[4], thread)
    call('ZREMRANGEBYSCORE', KEYS[11], 1, '(' .. whole(at - LOST_MS * 1000))
  end
  if ttl and till then live_on() end
  return fields
end

local function namespace_of(head) return string.match(parts(head), '^[^%z]*') end

-- Notes whether there are writes, so that their loss is seen. Only who put or removed some may note it.
local function note_writes()
  if call('EXISTS', writes) == 1 then call('HSET', meta, 'w', 1) else call('HDEL', meta, 'w') end
end

-- Removes the batches of checkpoints, one of each per round.
local function forget(marks)
  local names, gone = many('HMGET', writes, marks), {}
  for i, name in ipairs(names) do
    if name then gone[#gone + 1] = marks[i] end
  end
  while #names > 0 do
    local present = {}
    for _, name in ipairs(names) do
      if name and name ~= NONE then
        present[#present + 1] = name
        gone[#gone + 1] = name
      end
    end
    names = many('HMGET', writes, present)
    for i, blob in ipairs(names) do
      names[i] = sub(blob, 2, 18)
    end
  end
  many('HDEL', writes, gone)
  if #gone > 0 then note_writes() end
end

-- Removes rows with their writes, and frames.
local function remove(members, keys)
  local names, marks, early = {}, {}, {}
  for i, score in ipairs(many('ZMSCORE', order, members)) do
    marks[i] = mark(members[i])
    if score then names[#names + 1] = name_of(score) else early[#early + 1] = 'e:' .. members[i] end
  end
  local stale = {}
  local dropped = many('HMGET', heads, names)
  -- Removals come first: a full server refuses a script only at its first write, if that could need memory.
  many('ZREM', order, members)
  many('HDEL', meta, early)
  for i, head in ipairs(dropped) do
    local ns, run = namespace_of(head), run_of(head)
    if stale[ns] == nil then stale[ns] = call('HGET', meta, 'h:' .. ns) end
    if stale[ns] == names[i] then stale[ns] = true end
    count(run, -1)
  end
  for _, key in ipairs({ heads, data }) do
    many('HDEL', key, names)
    many('HDEL', key, keys)
  end
  forget(marks)
  for ns, top in pairs(stale) do
    if top ~= true then stale[ns] = nil end
  end
  return stale
end

-- Keeps these rows with their writes, these frames, and writes without a row, and removes all else: what goes costs
-- nothing, however much it is.
local function retain(members, keys)
  local stale, gone, batch_parts, ranks, kept = {}, {}, {}, {}, {}
  local function keep_writes(member)
    local blobs, names = batches(mark(member))
    for i, name in ipairs(names) do
      batch_parts[#batch_parts + 1], batch_parts[#batch_parts + 2] = name, blobs[i]
    end
    if names[1] then batch_parts[#batch_parts + 1], batch_parts[#batch_parts + 2] = mark(member), names[1] end
  end
  for _, field in ipairs(call('HKEYS', meta)) do
    local kind = sub(field, 1, 2)
    if kind == 'h:' or kind == 'r:' then gone[#gone + 1] = field end
    if kind == 'e:' then keep_writes(sub(field, 3)) end
  end
  for i, score in ipairs(many('ZMSCORE', order, members)) do
    if score then
      ranks[#ranks + 1], ranks[#ranks + 2] = score, members[i]
      kept[#kept + 1] = name_of(score)
    end
    keep_writes(members[i])
  end
  local row_heads = many('HMGET', heads, kept)
  for _, key in ipairs(keys) do
    kept[#kept + 1] = key
  end
  local pairs_of = {}
  for _, key in ipairs({ heads, data }) do
    local list = {}
    for i, value in ipairs(many('HMGET', key, kept)) do
      if value then list[#list + 1], list[#list + 2] = kept[i], value end
    end
    pairs_of[key] = list
  end
  call('UNLINK', order, heads, data, writes)
  many('HDEL', meta, gone)
  many('ZADD', order, ranks)
  many('HSET', heads, pairs_of[heads])
  many('HSET', data, pairs_of[data])
  many('HSET', writes, batch_parts)
  note_writes()
  for _, head in ipairs(row_heads) do
    stale[namespace_of(head)] = true
    count(run_of(head), 1)
  end
  return stale
end

-- All rows and frames but these.
local function others(members, keys)
  local stays = {}
  for _, list in ipairs({ members, keys }) do
    for _, name in ipairs(list) do
      stays[name] = true
    end
  end
  local gone_members, gone_keys = {}, {}
  for _, member in ipairs(call('ZRANGE', order, 0, -1)) do
    if not stays[member] then gone_members[#gone_members + 1] = member end
  end
  for _, key in ipairs(call('HKEYS', heads)) do
    if #key >= 16 and not stays[key] then gone_keys[#gone_keys + 1] = key end
  end
  return gone_members, gone_keys
end

-- ARGV: operation, rev, thread, numbers of rows and of frames, whether these stay or go, members of the rows, keys of
-- the frames, then member, hidden (1 byte), and parent and via as in the texts of each row that changes.
if verb == 'apply' then
  local operation, rev, thread, rows, frames, how = unpack(ARGV, 2, 7)
  if call('HGET', meta, 'op') == operation then return 1 end
  if (call('HGET', meta, 'rev') or '0') ~= rev then return 0 end
  local members, keys = {}, {}
  for i = 8, 7 + rows do
    members[#members + 1] = ARGV[i]
  end
  for i = 8 + rows, 7 + rows + frames do
    keys[#keys + 1] = ARGV[i]
  end
  local changed = {}
  if noted then
    local gone_members, gone_keys = members, keys
    if how == 'keep' then gone_members, gone_keys = others(members, keys) end
    for _, member in ipairs(gone_members) do
      changed[#changed + 1], changed[#changed + 2] = '1' .. member, '3' .. member
    end
    for _, key in ipairs(gone_keys) do
      changed[#changed + 1] = '2' .. key
    end
  end
  local stale = (how == 'keep' and retain or remove)(members, keys)
  for i = 8 + rows + frames, #ARGV, 3 do
    local member, flag, links = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    changed[#changed + 1] = '1' .. member
    local score = call('ZSCORE', order, member)
    if score then
      local name = name_of(score)
      local head = call('HGET', heads, name)
      local _, deltas, rest = parts(head)
      local texts = table.concat({ member, links, run_of(head) }, '\0')
      call('HSET', heads, name, sub(head, 1, 1) .. flag .. struct.pack('>I4I4', #texts, deltas) .. texts .. rest)
      if sub(head, 2, 2) ~= flag then stale[split(member)] = true end
    end
  end
  promote(stale)
  if call('ZCARD', order) == 0 then
    discard(thread)
    if noted then finish(thread) end
  else
    if #changed > 0 and noted then note(changed) end
    call('HSET', meta, 'op', operation)
    call('HINCRBY', meta, 'rev', 1)
    if ttl then live_on(waits()) end
  end
  return 1
end

-- Takes a copy under a header ('' for none), if the source is there, and its header has the same id.
-- Writes of the target that came before its first checkpoint stay, instead of the copied ones of their checkpoints.
local function receive(operation, thread, given, there, found, fetch)
  if version then return call('HGET', meta, 'by') == operation and 1 or 0 end
  if not there then return 1 end
  if sub(given, 1, 8) ~= sub(found or '', 1, 8) then return REKEYED end
  if rekeyed(given, header) then return 0 end
  tiered(thread)
  call('HDEL', meta, 'k', 'z', 'w')
  local own, early, marks = call('HGETALL', writes), call('HKEYS', meta), {}
  fetch()
  for i = 1, #own, 2 do
    if #own[i] == 16 then marks[#marks + 1] = own[i] end
  end
  forget(marks)
  many('HSET', writes, own)
  if #own > 0 then note_writes() end
  for _, field in ipairs(early) do
    call('HDEL', meta, field)
    if not call('ZSCORE', order, sub(field, 3)) then call('HSET', meta, field, now()) end
  end
  if noted then
    call('HSET', meta, 'z', 1)
    call('HSET', tier, 'r', 1)
    note({ '*' })
  else
    call('HDEL', meta, 'z')
  end
  if given ~= '' then call('HSET', meta, 'k', given) end
  call('HSET', meta, 'by', operation, 'rev', now())
  call('ZADD', index, 0, thread)
  expire()
  ttl, till = call('HGET', meta, 't'), nil
  if ttl then
    call('HSET', meta, 'n', thread)
    live_on(waits())
  end
  return 1
end

-- KEYS: the target's ten, then the source's first five.
if verb == 'copy' then
  return receive(ARGV[2], ARGV[3], ARGV[4], source_version, call('HGET', KEYS[11], 'k'), function()
    for i = 1, 5 do
      call('COPY', KEYS[10 + i], KEYS[i], 'REPLACE')
    end
  end)
end

-- The two halves of a copy between slots.
if verb == 'export' then
  if not version then return {} end
  local scored = call('ZRANGE', order, 0, -1, 'WITHSCORES')
  for i = 1, #scored, 2 do
    scored[i], scored[i + 1] = scored[i + 1], scored[i]
  end
  local fetched = { call('HGETALL', meta), scored }
  for i = 3, 5 do
    fetched[i] = call('HGETALL', KEYS[i])
  end
  for i, part in ipairs(fetched) do
    fetched[i] = cmsgpack.pack(part)
  end
  return fetched
end

if verb == 'import' then
  local sent, found = #ARGV > 4, nil
  local fields = sent and cmsgpack.unpack(ARGV[5]) or {}
  for i = 1, #fields, 2 do
    if fields[i] == 'k' then found = fields[i + 1] end
  end
  return receive(ARGV[2], ARGV[3], ARGV[4], sent, found, function()
    for i, key in ipairs({ meta, order, heads, data, writes }) do
      many(key == order and 'ZADD' or 'HSET', key, cmsgpack.unpack(ARGV[4 + i]))
    end
  end)
end

-- ARGV: thread, microseconds. Removes writes that came so long ago and have no row; returns of how many checkpoints.
if verb == 'sweep' then
  local gone, marks, limit = {}, {}, now() - ARGV[3]
  if not version and not header and not noted then
    local born, ended = unpack(call('HMGET', tier, 'b', 'x'))
    if not born and not ended then
      call('ZREM', index, ARGV[2])
    elseif call('ZSCORE', index, ARGV[2]) == '0' then
      call('ZADD', index, math.floor(now() / 1000), ARGV[2])
    end
  end
  for _, field in ipairs(call('HKEYS', meta)) do
    if sub(field, 1, 2) == 'e:' and (tonumber(call('HGET', meta, field)) or 0) <= limit then
      gone[#gone + 1], marks[#marks + 1] = field, mark(sub(field, 3))
    end
  end
  many('HDEL', meta, gone)
  forget(marks)
  if noted and #gone > 0 then
    local changed = {}
    for i, field in ipairs(gone) do
      changed[i] = '3' .. sub(field, 3)
    end
    note(changed)
    if call('HLEN', meta) == 1 then -- nothing is left but that it was noted
      discard(ARGV[2])
      finish(ARGV[2])
    end
  end
  return #gone
end

-- ARGV: the header as it is now, and as it is to be.
if verb == 'rewrap' then
  if header ~= ARGV[2] then return 0 end
  call('HSET', meta, 'k', ARGV[3])
  if noted then note({ '0' }) end
  return 1
end
