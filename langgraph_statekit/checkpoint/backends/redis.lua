-- Every verb of the store as one atomic script: ARGV[1] names the verb.
--
-- KEYS, all in one slot: meta, order, heads, data, writes of a thread, the index of its bucket, the thread's lease, and what
-- is noted for a cold store (see redis_tier.lua): the thread's tier and touched, and the tiers of its bucket.
--   meta    hash: v = format, rev, seq = highest one given, by = operation of the copy, op = that of the last apply,
--           k = header of the data key, z = 1 if changes are noted for a cold store, w = 1 if there are writes,
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
-- The first line, before this one, says whether a saver with a cold store calls (TIERED).
-- Claims and deletions also get, as the eleventh, the index of the bucket's leases:
--   leases  zset: thread -> until, unless the lease was given back
-- Of a thread's first five keys only `n` holds its id, so that whole keys can be copied to another thread.

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
local meta, order, heads, data, writes, index, lease, tier, touched, tiers = unpack(KEYS)
local verb = ARGV[1]

local version, ttl, till, header, noted, written = unpack(call('HMGET', meta, 'v', 't', 'u', 'k', 'z', 'w'))
local source_version = verb == 'copy' and call('HGET', KEYS[11], 'v')
local newest = math.max(version or 0, source_version or 0)
if newest > FORMAT then return { err = 'SCHEMA ' .. newest } end

-- A server that evicts, or a person, takes single keys: what is left would be read as a thread that lacks state.
local WHOLE = { save = 1, save_writes = 1, load = 1, rows = 1, fill = 1, heads = 1, outline = 1, apply = 1 }
local function torn()
  return call('EXISTS', order, heads, data) ~= (version and 3 or 0) or written and call('EXISTS', writes) == 0
end
if WHOLE[verb] and torn() then return { err = 'TORN' } end

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

local note, unsafe, begin
if noted or TIERED or not version then -- what others need not make anew with each call
  -- Notes what changes, for the cold store.
  note = function(what)
    local count = 0
    for i = 1, #what, CHUNK do
      count = call('RPUSH', touched, unpack(what, i, math.min(i + CHUNK - 1, #what)))
    end
    if count == #what then call('ZADD', tiers, now(), call('HGET', tier, 'n')) end
  end

  -- Whether something is noted that would be lost with the thread.
  unsafe = function()
    for _, name in ipairs(call('LRANGE', touched, 0, -1)) do
      if name ~= '0' then return true end
    end
  end

  -- Begins to note the changes of a life of the thread. One that is noted, but no more here, has expired.
  begin = function(thread)
    local born, ended, rows, whole_life, stub = unpack(call('HMGET', tier, 'b', 'x', 'r', 'c', 'd'))
    local over = math.max(ended or 0, (rows or whole_life == '1') and born or 0)
    local at = whole(math.max(now(), math.max(over, born or 0, stub or 0) + 1))
    local held = call('EXISTS', meta) == 1
    call('HSET', tier, 'n', thread, 'b', at)
    call('HDEL', tier, 'e', 'r', 'c', 'm')
    call('UNLINK', touched)
    if over > 0 then call('HSET', tier, 'x', whole(over)) end
    if version then call('HSET', tier, 'r', 1) end
    call('PERSIST', tier)
    call('HSET', meta, 'z', 1)
    call('ZADD', tiers, 0, '\0')
    noted = '1'
    if held then note({ '*' }) end
  end
end

-- Whether to note what changes: once a saver with a cold store was here, whoever makes the change.
local function tiered(thread)
  if not noted and (TIERED or not version and call('EXISTS', tiers) == 1) then begin(thread) end
  return noted
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
  local over = not (held and tonumber(ttl) > 0) and next_end(at)
  if noted and (over or nil) ~= (till or nil) then note({ '0' }) end
  if not over then
    call('HDEL', meta, 'u')
    expire()
    return call('ZADD', index, 0, name)
  end
  call('HSET', meta, 'u', over)
  expire(not (noted and unsafe()) and over)
  call('ZADD', index, over, name)
  if not noted then call('ZREMRANGEBYSCORE', index, 1, '(' .. whole(at)) end
end

local function split(member)
  local at = string.find(member, '\0', 1, true)
  return sub(member, 1, at - 1), sub(member, at + 1)
end

-- What names a row in heads, data and meta; shorter than the key of any frame.
local function name_of(score) return string.format('%x', score) end

local function hidden(head)
  if not head then error('TORN') end
  return byte(head, 2) == 1
end

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
  local member = ARGV[5]
  if tiered(ARGV[4]) then note({ '3' .. member }) end
  keep(ARGV[3], ARGV[4])
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
  if not written then call('HSET', meta, 'w', 1) end
  if not version then
    for i = 1, 5, 4 do
      if noted then call('PERSIST', KEYS[i]) else call('PEXPIRE', KEYS[i], ORPHANS_MS) end
    end
  elseif ttl and (till or asking) then
    live_on(asking and waits())
  end
  return 1
end
