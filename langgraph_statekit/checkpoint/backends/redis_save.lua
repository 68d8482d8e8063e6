-- Saves of rows, the second part of the script that redis.lua begins.

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

-- The texts of a row, its deltas with their length, and its keys.
local function parts(head)
  local _, _, texts, deltas = struct.unpack('>BBI4I4', head)
  return sub(head, 11, 10 + texts), deltas, sub(head, 11 + texts)
end

local function run_of(head)
  local _, _, _, _, run = string.match(parts(head), TEXTS)
  return run
end

local function count(run, by)
  if run ~= '' and call('HINCRBY', meta, 'r:' .. run, by) <= 0 then call('HDEL', meta, 'r:' .. run) end
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
      local name = name_of(page[i + 1])
      if stale[ns] and not hidden(call('HGET', heads, name)) then
        call('HSET', meta, 'h:' .. ns, name)
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

-- The key under which a frame with this key and check is stored, and the frame's head.
local function find(key, check)
  local head = call('HGET', heads, key)
  if head and sub(head, 3, 6) == check then return key, head end
  head = call('HGET', heads, key .. check)
  return head and key .. check, head
end

-- Key and check of the frame that a delta builds on.
local function base_of(head)
  if #head >= 26 and byte(head) == 1 and byte(head, 2) % 4 >= 2 then return sub(head, 7, 22), sub(head, 23, 26) end
end

-- Moves frames that another value replaces to a key that tells their check, since deltas may build on them.
local function set_aside(keys, checks)
  local moved_heads, moved_data = {}, {}
  for i, head in ipairs(many('HMGET', heads, keys)) do
    local check = head and sub(head, 3, 6)
    if check and check ~= checks[i] then
      local key = keys[i] .. check
      moved_heads[#moved_heads + 1], moved_heads[#moved_heads + 2] = key, head
      moved_data[#moved_data + 1], moved_data[#moved_data + 2] = key, call('HGET', data, keys[i])
    end
  end
  many('HSET', heads, moved_heads)
  many('HSET', data, moved_data)
  return moved_heads
end

-- The seq of a new row: the wanted one above all others, or see order.py, which gave `at`; it counts while the highest seq
-- is at most `until_last`.
local function place(at, until_last, last, parent, wanted)
  if wanted > last then return wanted end
  local seq = last + 1
  if at > 0 and last <= until_last then seq = math.max(at, (call('ZSCORE', order, parent) or 0) + 1) end
  while seq <= last and call('ZCOUNT', order, whole(seq), whole(seq)) > 0 do
    seq = seq + 1
  end
  return seq
end

-- Whether each frame of a row is among these keys or stored.
local function complete(head, sent)
  local known = {}
  for _, key in ipairs(sent) do
    known[key] = true
  end
  local _, deltas, rest = parts(head)
  for at = deltas + 1, #rest, 16 do
    local key = sub(rest, at, at + 15)
    if not known[key] and call('HEXISTS', heads, key) == 0 then return false end
  end
  return true
end

-- ARGV: token or '', header or '', member of the row and of its parent, namespace, thread, head and body, run, at and
-- until when it counts, number of frames to remove, whether its parent must be stored if not all frames are (1), the
-- thread's time to live from now on or '', the seq that it must get or 0, keys of the frames to remove, then key and data
-- of each other frame.
if verb == 'save' then
  if fenced(ARGV[2]) then return FENCED end
  if rekeyed(ARGV[3], header) then return REKEYED end
  local member, parent, ns, thread, head, body, run, at, until_last, removed, needs, life, wanted = unpack(ARGV, 4, 16)
  local first = 17
  local gone = first - 1 + removed
  local keys, checks, frame_heads = {}, {}, {}
  for i = first, gone do
    keys[#keys + 1], checks[#checks + 1] = ARGV[i], ''
  end
  for i = gone + 1, #ARGV, 2 do
    local frame = sub(ARGV[i + 1], 1, 26)
    local base, check = base_of(frame)
    if base and not find(base, check) then return 0 end
    keys[#keys + 1], checks[#checks + 1] = ARGV[i], sub(frame, 3, 6)
    frame_heads[#frame_heads + 1], frame_heads[#frame_heads + 2] = ARGV[i], frame
  end
  if needs == '1' and not call('ZSCORE', order, parent) and not complete(head, keys) then return 0 end
  local rev, last, top, early = unpack(call('HMGET', meta, 'rev', 'seq', 'h:' .. ns, 'e:' .. member))
  local known, old = call('ZSCORE', order, member), nil
  wanted, last = tonumber(wanted), tonumber(last or 0)
  local score = known or place(tonumber(at), tonumber(until_last), last, parent, wanted)
  if wanted > 0 and wanted ~= tonumber(score) then return -score end
  tiered(thread)
  rev = rev and whole(rev + 1) or now()
  local fields = { 'rev', rev }
  if known then
    old = call('HGET', heads, name_of(score))
  else
    call('ZADD', order, whole(score), member)
    fields[3], fields[4] = 'seq', whole(math.max(score, last))
    if not hidden(head) and (not top or tonumber(top, 16) < score) then
      fields[5], fields[6] = 'h:' .. ns, name_of(score)
    end
    if early then call('HDEL', meta, 'e:' .. member) end
  end
  if not version then
    fields[#fields + 1], fields[#fields + 2] = 'v', FORMAT
    call('ZADD', index, 0, thread)
  end
  call('HSET', meta, unpack(fields))
  keep(ARGV[3], thread)
  local moved = set_aside(keys, checks)
  if noted then
    local changed = { '1' .. member }
    for _, key in ipairs(keys) do
      changed[#changed + 1] = '2' .. key
    end
    for i = 1, #moved, 2 do
      changed[#changed + 1] = '2' .. moved[i]
    end
    note(changed)
    if not version then call('HSET', tier, 'r', 1) end
  end
  many('HDEL', heads, ARGV, first, gone)
  many('HDEL', data, ARGV, first, gone)
  frame_heads[#frame_heads + 1], frame_heads[#frame_heads + 2] = name_of(score), head
  many('HSET', heads, frame_heads)
  call('HSET', data, name_of(score), body)
  many('HSET', data, ARGV, gone + 1)
  local old_run = old and run_of(old) or ''
  if old_run ~= run then
    count(old_run, -1)
    count(run, 1)
  end
  if old and hidden(old) ~= hidden(head) then promote({ [ns] = true }) end
  local had = ttl
  if life ~= '' then ttl = life ~= '0' and life end
  if ttl and ttl ~= had then call('HSET', meta, 't', ttl, 'n', thread) end
  if ttl then
    live_on((early or old or not till or ttl ~= had) and waits())
  elseif had then
    call('HDEL', meta, 't', 'u', 'n')
    expire()
    call('ZADD', index, 0, thread)
  elseif not version then
    expire()
  end
  return tonumber(rev)
end
