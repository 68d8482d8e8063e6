-- Every verb of the store as one atomic script: ARGV[1] names the verb.
--
-- KEYS, all in one slot: meta, order, rows, frames, writes of a thread, and the index of its bucket.
--   meta    hash: v = format, rev, seq = last one given, by = operation of the copy, op = that of the last apply,
--           h:NAMESPACE = seq of its head, r:RUN = number of its rows (RUN begins with "=")
--   order   zset: NAMESPACE \0 ID -> seq
--   rows    hash: seq -> format and hidden (1 byte each), lengths of links, run, deltas and keys
--           (4 bytes each), these four, body
--   frames  hash: key (16 bytes) -> data
--   writes  hash: mark of a checkpoint (16 characters) -> name of its newest batch;
--           name of a batch (17 characters) -> format (1 byte), name of the next older batch or NONE,
--           length of the task (4 bytes), task, entries: idx and length (4 bytes each), payload
-- Nothing but the index holds the thread's id, so that whole keys can be copied to another thread.

local FORMAT = 1
local CHUNK = 1000 -- unpack fails at about 8,000 values; even, because HSET takes pairs
local NONE = string.rep('-', 17)
local call, byte, sub = redis.call, string.byte, string.sub
local meta, order, rows, frames, writes, index = unpack(KEYS)

local version = call('HGET', meta, 'v')
local source_version = KEYS[7] and call('HGET', KEYS[7], 'v') -- only a copy has it
local newest = math.max(version or 0, source_version or 0)
if newest > FORMAT then return { err = 'SCHEMA ' .. newest } end

-- A score is a float: some servers print 100000000 as 1e+08.
local function whole(number) return string.format('%.0f', number) end

local function optional(text) return text ~= '' and sub(text, 2) or nil end

local function many(command, key, list, from, to)
  local found = {}
  to = to or #list
  for i = from or 1, to, CHUNK do
    local reply = call(command, key, unpack(list, i, math.min(i + CHUNK - 1, to)))
    if type(reply) == 'table' then
      for j = 1, #reply do
        found[#found + 1] = reply[j]
      end
    end
  end
  return found
end

-- The `<` of Lua follows the locale of the server.
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function split(member)
  local at = string.find(member, '\0', 1, true)
  return sub(member, 1, at - 1), sub(member, at + 1)
end

local function lengths(row)
  local _, _, links, run, deltas, keys = struct.unpack('>BBI4I4I4I4', row)
  return links, run, deltas, keys
end

local function hidden(row) return byte(row, 2) == 1 end

local function run_of(row)
  local links, run = lengths(row)
  return sub(row, 19 + links, 18 + links + run)
end

local function count(run, by)
  if run ~= '' and call('HINCRBY', meta, 'r:' .. run, by) <= 0 then call('HDEL', meta, 'r:' .. run) end
end

local function now()
  local time = call('TIME')
  return time[1] .. string.format('%06d', time[2])
end

-- Finds the heads of the given namespaces again.
local function promote(stale)
  local left, top = 0, '+inf'
  for _ in pairs(stale) do
    left = left + 1
  end
  while left > 0 do
    local page = call('ZREVRANGEBYSCORE', order, top, '-inf', 'WITHSCORES', 'LIMIT', 0, CHUNK)
    if #page == 0 then break end
    for i = 1, #page, 2 do
      local ns = split(page[i])
      local seq = whole(page[i + 1])
      if stale[ns] and not hidden(call('HGET', rows, seq)) then
        call('HSET', meta, 'h:' .. ns, seq)
        stale[ns] = nil
        left = left - 1
      end
    end
    top = '(' .. page[#page]
  end
  for ns in pairs(stale) do
    call('HDEL', meta, 'h:' .. ns)
  end
end

local function mark(member) return sub(redis.sha1hex(member), 1, 16) end

-- The batches of a checkpoint, newest first.
local function batches(head)
  local blobs = {}
  local name = call('HGET', writes, head)
  while name and name ~= NONE do
    local blob = call('HGET', writes, name)
    blobs[#blobs + 1] = blob
    name = sub(blob, 2, 18)
  end
  return blobs
end

-- Removes the batches of checkpoints, one of each per round.
local function forget(heads)
  local names, gone = many('HMGET', writes, heads), {}
  for i, name in ipairs(names) do
    if name then gone[#gone + 1] = heads[i] end
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
end

local function merge(old, new)
  local sequence, entries = {}, {}
  for _, text in ipairs({ old, new }) do
    local at = 1
    while at <= #text do
      local idx, size = struct.unpack('>i4I4', text, at)
      if not entries[idx] then sequence[#sequence + 1] = idx end
      if not entries[idx] or idx < 0 then entries[idx] = sub(text, at, at + 7 + size) end
      at = at + 8 + size
    end
  end
  for i, idx in ipairs(sequence) do
    sequence[i] = entries[idx]
  end
  return table.concat(sequence)
end

local function discard(thread)
  call('UNLINK', meta, order, rows, frames, writes)
  call('ZREM', index, thread)
end

local verbs = { drop = discard }

function verbs.save(thread, ns, member, row, gone)
  local score, run, old = call('ZSCORE', order, member), run_of(row), nil
  local seq = score and whole(score) or whole(call('HINCRBY', meta, 'seq', 1))
  if score then old = call('HGET', rows, seq) else call('ZADD', order, seq, member) end
  if not version then
    call('HSET', meta, 'v', FORMAT, 'rev', now())
    call('ZADD', index, 0, thread)
  end
  call('HSET', rows, seq, row)
  if not old or run_of(old) ~= run then
    count(old and run_of(old) or '', -1)
    count(run, 1)
  end
  if old and hidden(old) ~= hidden(row) then
    promote({ [ns] = true })
  elseif not old and not hidden(row) then
    call('HSET', meta, 'h:' .. ns, seq)
  end
  many('HDEL', frames, ARGV, 7, 6 + gone)
  many('HSET', frames, ARGV, 7 + gone)
  call('HINCRBY', meta, 'rev', 1)
end

function verbs.save_writes(member)
  local head = mark(member)
  for i = 3, #ARGV, 2 do
    local task, entries = ARGV[i], ARGV[i + 1]
    local name = sub(redis.sha1hex(member .. '\0' .. task), 1, 17)
    local old = call('HGET', writes, name)
    if old then
      local top = 22 + #task
      local merged = sub(old, 1, top) .. merge(sub(old, top + 1), entries)
      if merged ~= old then call('HSET', writes, name, merged) end
    else
      local older = call('HGET', writes, head) or NONE
      local blob = string.char(FORMAT) .. older .. struct.pack('>I4', #task) .. task .. entries
      call('HSET', writes, head, name, name, blob)
    end
  end
end

function verbs.load(ns, id)
  local member, seq
  if id == '' then
    seq = call('HGET', meta, 'h:' .. ns)
    member = seq and call('ZRANGEBYSCORE', order, seq, seq)[1]
  else
    member = ns .. '\0' .. optional(id)
    local score = call('ZSCORE', order, member)
    seq = score and whole(score)
  end
  local row = seq and call('HGET', rows, seq)
  if not row or hidden(row) then return false end
  local links, run, deltas, keys = lengths(row)
  local wanted, first = {}, 19 + links + run + deltas
  for at = first, first + keys - 1, 16 do
    wanted[#wanted + 1] = sub(row, at, at + 15)
  end
  return { member, seq, row, many('HMGET', frames, wanted), batches(mark(member)) }
end

function verbs.rows(ns, id, before, below, limit)
  ns, id, before, limit = optional(ns), optional(id), optional(before), tonumber(limit)
  local found, bounds = {}, {}
  local function selects(member, score)
    local its_ns, its_id = split(member)
    if (ns and its_ns ~= ns) or (id and its_id ~= id) then return false end
    if not before then return true end
    if bounds[its_ns] == nil then bounds[its_ns] = call('ZSCORE', order, its_ns .. '\0' .. before) end
    local bound = bounds[its_ns]
    if bound then return tonumber(score) < tonumber(bound) end
    return less(its_id, before)
  end
  local function take(page)
    local members, seqs = {}, {}
    for i = 1, #page, 2 do
      if selects(page[i], page[i + 1]) then
        members[#members + 1] = page[i]
        seqs[#seqs + 1] = whole(page[i + 1])
      end
    end
    for i, row in ipairs(many('HMGET', rows, seqs)) do
      if not hidden(row) and #found < 3 * limit then
        found[#found + 1] = members[i]
        found[#found + 1] = seqs[i]
        found[#found + 1] = row
      end
    end
  end
  if ns and id then
    local score = call('ZSCORE', order, ns .. '\0' .. id)
    if score and (below == '' or tonumber(score) < tonumber(below)) then
      take({ ns .. '\0' .. id, score })
    end
    return found
  end
  local top, size = below == '' and '+inf' or '(' .. below, math.min(limit, CHUNK)
  while #found < 3 * limit do
    local page = call('ZREVRANGEBYSCORE', order, top, '-inf', 'WITHSCORES', 'LIMIT', 0, size)
    if #page == 0 then break end
    take(page)
    top, size = '(' .. page[#page], math.min(2 * size, CHUNK)
  end
  return found
end

function verbs.fill(keys)
  local found = {}
  for i = 3 + keys, #ARGV do
    found[#found + 1] = batches(mark(ARGV[i]))
  end
  return { many('HMGET', frames, ARGV, 3, 2 + keys), found }
end

function verbs.outline(ns)
  ns = optional(ns)
  local found, at = {}, 0
  while true do
    local page = call('ZRANGE', order, at, at + CHUNK - 1, 'WITHSCORES')
    if #page == 0 then break end
    local members, seqs = {}, {}
    for i = 1, #page, 2 do
      if not ns or split(page[i]) == ns then
        members[#members + 1] = page[i]
        seqs[#seqs + 1] = whole(page[i + 1])
      end
    end
    for i, row in ipairs(many('HMGET', rows, seqs)) do
      local links, run, deltas, keys = lengths(row)
      found[#found + 1] = members[i]
      found[#found + 1] = seqs[i]
      found[#found + 1] = sub(row, 1, 18 + links + run + deltas + keys)
    end
    at = at + CHUNK
  end
  return { call('HGET', meta, 'rev') or '0', found, call('HKEYS', frames) }
end

function verbs.apply(operation, rev, thread, drops, gone)
  if call('HGET', meta, 'op') == operation then return 1 end
  if (call('HGET', meta, 'rev') or '0') ~= rev then return 0 end
  local last = 6 + drops
  local seqs, marks, stale, heads = {}, {}, {}, {}
  for i, score in ipairs(many('ZMSCORE', order, ARGV, 7, last)) do
    local member = ARGV[6 + i]
    marks[i] = mark(member)
    if score then
      local ns, seq = split(member), whole(score)
      seqs[#seqs + 1] = seq
      if heads[ns] == nil then heads[ns] = call('HGET', meta, 'h:' .. ns) end
      if heads[ns] == seq then stale[ns] = true end
    end
  end
  local dropped = many('HMGET', rows, seqs)
  -- Removals come first: a full server refuses a script only at its first write, if that could need memory.
  many('ZREM', order, ARGV, 7, last)
  many('HDEL', rows, seqs)
  for _, row in ipairs(dropped) do
    count(run_of(row), -1)
  end
  forget(marks)
  many('HDEL', frames, ARGV, last + 1, last + gone)
  for i = last + gone + 1, #ARGV, 3 do
    local score = call('ZSCORE', order, ARGV[i])
    if score then
      local seq, flag, links = whole(score), ARGV[i + 1], ARGV[i + 2]
      local row = call('HGET', rows, seq)
      local changed = sub(row, 1, 1) .. flag .. struct.pack('>I4', #links) .. sub(row, 7, 18) .. links
      call('HSET', rows, seq, changed .. sub(row, 19 + lengths(row)))
      if sub(row, 2, 2) ~= flag then stale[split(ARGV[i])] = true end
    end
  end
  promote(stale)
  if call('ZCARD', order) == 0 then
    discard(thread)
  else
    call('HSET', meta, 'op', operation)
    call('HINCRBY', meta, 'rev', 1)
  end
  return 1
end

local function receive(operation, thread, fetch)
  if version then return call('HGET', meta, 'by') == operation and 1 or 0 end
  local own = call('HGETALL', writes) -- writes that came before the first checkpoint
  if not fetch() then return 1 end
  local heads = {}
  for i = 1, #own, 2 do
    if #own[i] == 16 then heads[#heads + 1] = own[i] end
  end
  forget(heads)
  many('HSET', writes, own)
  call('HSET', meta, 'by', operation, 'rev', now())
  call('ZADD', index, 0, thread)
  return 1
end

-- KEYS: the target's six, then the source's first five.
function verbs.copy(operation, thread)
  return receive(operation, thread, function()
    for i = 1, source_version and 5 or 0 do
      call('COPY', KEYS[6 + i], KEYS[i], 'REPLACE')
    end
    return source_version
  end)
end

-- The two halves of a copy between slots.
function verbs.export()
  local scored = call('ZRANGE', order, 0, -1, 'WITHSCORES')
  for i = 1, #scored, 2 do
    scored[i], scored[i + 1] = scored[i + 1], scored[i]
  end
  local parts = { call('HGETALL', meta), scored }
  for i = 3, 5 do
    parts[i] = call('HGETALL', KEYS[i])
  end
  for i, part in ipairs(parts) do
    parts[i] = cmsgpack.pack(part)
  end
  return version and parts or {}
end

function verbs.import(operation, thread)
  return receive(operation, thread, function()
    for i, key in ipairs(#ARGV > 3 and { meta, order, rows, frames, writes } or {}) do
      many(key == order and 'ZADD' or 'HSET', key, cmsgpack.unpack(ARGV[3 + i]))
    end
    return #ARGV > 3
  end)
end

return verbs[ARGV[1]](unpack(ARGV, 2, math.min(#ARGV, 7)))
