-- Every verb of the store as one atomic script: ARGV[1] names the verb.
--
-- KEYS, all in one slot: meta, order, heads, data, writes of a thread, the index of its bucket, and the thread's lease.
--   meta    hash: v = format, rev, seq = highest one given, by = operation of the copy, op = that of the last apply,
--           k = header of the data key,
--           h:NAMESPACE = name of its head, r:RUN = number of its rows (RUN begins with "="),
--           e:NAMESPACE \0 ID = when writes came (microseconds) that have no row yet;
--           if it can expire: t = time to live (negative: interrupted or not), u = its end while it has one
--           (milliseconds), n = thread. All five keys then expire at that end. Without any row they expire as orphans
--   order   zset: NAMESPACE \0 ID -> seq
--   heads   hash, all that retention looks at: name of a row (its seq in hex) -> format and hidden (1 byte each), lengths of
--           texts and deltas (4 bytes each), texts, deltas, keys; key of a frame (16 or 20 bytes) -> its first 26 bytes.
--           The texts are NAMESPACE \0 ID \0 PARENT \0 VIA \0 RUN; the last three are empty or begin with "="
--   data    hash: name of a row -> body; key of a frame -> all of it
--   writes  hash: mark of a checkpoint (16 characters) -> name of its newest batch;
--           name of a batch (17 characters) -> format (1 byte), name of the next older batch or NONE,
--           length of the task (4 bytes), task, entries: idx and length (4 bytes each), payload
--   lease   hash: holder, owner, token, until (microseconds; 0 when it was given back), about, beat and progress
--           (microseconds), control
--   index   zset: thread -> its end, or 0
-- Claims and deletions also get the index of the bucket's leases:
--   leases  zset: thread -> until, unless the lease was given back
-- Nothing but the index and `n` holds the thread's id, so that whole keys can be copied to another thread.

local FORMAT = 1
local FENCED, REKEYED = 2, 3
local CHUNK = 1000 -- unpack fails at about 8,000 values; even, because HSET takes pairs
local NONE = string.rep('-', 17)
local INTERRUPT = -3
local DAY_MS = 86400000
local ORPHANS_MS = DAY_MS
local LOST_MS = 30 * DAY_MS -- for so long a lease is listed that nobody gave back
local TEXTS = '^([^%z]*)%z([^%z]*)%z([^%z]*)%z([^%z]*)%z([^%z]*)$'
local call, byte, sub = redis.call, string.byte, string.sub
local meta, order, heads, data, writes, index, lease = unpack(KEYS)
local verb = ARGV[1]

local version, ttl, till, header = unpack(call('HMGET', meta, 'v', 't', 'u', 'k'))
local source_version = verb == 'copy' and call('HGET', KEYS[8], 'v')
local newest = math.max(version or 0, source_version or 0)
if newest > FORMAT then return { err = 'SCHEMA ' .. newest } end

-- Whether a save with this token comes too late.
local function fenced(token) return token ~= '' and call('HGET', lease, 'token') ~= token end

-- Whether a save, or a copy, is sealed with another key than its thread's: see claims.py.
local function rekeyed(sent, stored)
  if stored then return sub(sent, 1, 8) ~= sub(stored, 1, 8) end
  return #sent == 8
end

local function keep(sent, thread)
  if sent ~= '' and not header then
    call('HSET', meta, 'k', sent)
    call('ZADD', index, 0, thread)
  end
end

-- A call makes all functions anew up to where it returns, so the verbs come in the order of how often they are called.

local function mark(member) return sub(redis.sha1hex(member), 1, 16) end

-- A number as the store needs it; some servers print a score of 100000000 as 1e+08.
local function whole(number) return string.format('%.0f', number) end

local function now()
  local time = call('TIME')
  return time[1] .. string.format('%06d', time[2])
end

local function expire(over)
  for i = 1, 5 do
    if over then call('PEXPIREAT', KEYS[i], over) else call('PERSIST', KEYS[i]) end
  end
end

-- When a thread with a time to live ends that something happens to now: see expiry.py.
local function next_end(at)
  local span, over = math.abs(ttl), tonumber(till)
  if not over or over - at > span or over - at < 0.9 * span then over = at + span end
  return whole(math.max(over, math.ceil((call('HGET', lease, 'until') or 0) / 1000)))
end

-- Sets the end of a thread with a time to live anew, also for keys that came since; none while it is `held`.
local function live_on(held)
  local at, name = math.floor(now() / 1000), call('HGET', meta, 'n')
  if held and tonumber(ttl) > 0 then
    call('HDEL', meta, 'u')
    expire()
    return call('ZADD', index, 0, name)
  end
  local over = next_end(at)
  call('HSET', meta, 'u', over)
  expire(over)
  call('ZADD', index, over, name)
  call('ZREMRANGEBYSCORE', index, 1, '(' .. whole(at))
end

local function split(member)
  local at = string.find(member, '\0', 1, true)
  return sub(member, 1, at - 1), sub(member, at + 1)
end

-- What names a row in heads, data and meta; shorter than the key of any frame.
local function name_of(score) return string.format('%x', score) end

local function hidden(head) return byte(head, 2) == 1 end

-- The batches of a checkpoint, newest first, and their names.
local function batches(head)
  local blobs, names = {}, {}
  local name = call('HGET', writes, head)
  while name and name ~= NONE do
    local blob = call('HGET', writes, name)
    blobs[#blobs + 1], names[#names + 1] = blob, name
    name = sub(blob, 2, 18)
  end
  return blobs, names
end

-- Whether there is an interrupt among the entries of a batch.
local function asks(text, at)
  while at <= #text do
    local idx, size = struct.unpack('>i4I4', text, at)
    if idx == INTERRUPT then return true end
    at = at + 8 + size
  end
end

local function asked(member)
  for _, blob in ipairs((batches(mark(member)))) do
    if asks(blob, 23 + struct.unpack('>I4', blob, 19)) then return true end
  end
end

-- Whether the thread is interrupted: see expiry.py.
local function waits()
  local seen, top, size = {}, '+inf', 4
  while true do
    local page = call('ZREVRANGEBYSCORE', order, top, '-inf', 'WITHSCORES', 'LIMIT', 0, size)
    if #page == 0 then return false end
    for i = 1, #page, 2 do
      local ns = split(page[i])
      if not seen[ns] and not hidden(call('HGET', heads, name_of(page[i + 1]))) then
        if asked(page[i]) then return true end
        if ns == '' then return false end
        seen[ns] = true
      end
    end
    top, size = '(' .. page[#page], CHUNK
  end
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

-- ARGV: token or '', header or '', thread, member, then task and entries of each batch.
if verb == 'save_writes' then
  if fenced(ARGV[2]) then return FENCED end
  if rekeyed(ARGV[3], header) then return REKEYED end
  keep(ARGV[3], ARGV[4])
  local member = ARGV[5]
  local head, asking = mark(member), false
  for i = 6, #ARGV, 2 do
    local task, entries = ARGV[i], ARGV[i + 1]
    asking = asking or ttl and asks(entries, 1)
    local name = sub(redis.sha1hex(member .. '\0' .. task), 1, 17)
    local old = call('HGET', writes, name)
    if old then
      local top = 22 + #task
      local merged = sub(old, 1, top) .. merge(sub(old, top + 1), entries)
      if merged ~= old then call('HSET', writes, name, merged) end
    else
      local older = call('HGET', writes, head)
      if not older and not call('ZSCORE', order, member) then call('HSETNX', meta, 'e:' .. member, now()) end
      local blob = string.char(FORMAT) .. (older or NONE) .. struct.pack('>I4', #task) .. task .. entries
      call('HSET', writes, head, name, name, blob)
    end
  end
  if not version then
    for i = 1, 5, 4 do
      call('PEXPIRE', KEYS[i], ORPHANS_MS)
    end
  elseif ttl and (till or asking) then
    live_on(asking and waits())
  end
  return 1
end

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
end

-- The seq of a new row: see order.py, which gave `at`; it counts while the highest seq is at most `until_last`.
local function place(at, until_last, last, parent)
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
-- thread's time to live from now on or '', keys of the frames to remove, then key and data of each other frame.
if verb == 'save' then
  if fenced(ARGV[2]) then return FENCED end
  if rekeyed(ARGV[3], header) then return REKEYED end
  local member, parent, ns, thread, head, body, run, at, until_last, removed, needs, life = unpack(ARGV, 4, 15)
  local first = 16
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
  local score, old = call('ZSCORE', order, member), nil
  local fields = { 'rev', rev and whole(rev + 1) or now() }
  if score then
    old = call('HGET', heads, name_of(score))
  else
    last = tonumber(last or 0)
    score = place(tonumber(at), tonumber(until_last), last, parent)
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
  set_aside(keys, checks)
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
  return 1
end
