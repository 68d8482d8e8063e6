-- Cells: ARGV[1] names the verb.
--
-- KEYS of all verbs but `list`, all in one slot: a cell, the index and the ends of its bucket's cells, the lease of its thread.
--   cell   hash: d = format (1 byte), address, groups and value; r = rev; o = operation; l = its lists (12 bytes each);
--          u = its end in milliseconds, when the key expires, if it has one
--   index  zset, all of score 0: LIST, rev (8 bytes), THREAD \0 KEY. Some are of cells that have expired
--   ends   zset: LISTS, THREAD \0 KEY, with the length of LISTS (1 byte) and the rev before it -> end of a cell in the index

local FENCED = 2
local LIST = 12
local CLEANED = 8 -- cells that have expired whose index a change tidies up
local call, sub = redis.call, string.sub

-- KEYS: indexes of any buckets, so not on a cluster. ARGV: where to begin and to end, and how many of each index at most.
-- Returns the number of each index that has some, and these.
if ARGV[1] == 'list' then
  local found = {}
  for i, key in ipairs(KEYS) do
    local some = call('ZREVRANGEBYLEX', key, ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
    if #some > 0 then found[#found + 1] = { i, some } end
  end
  return found
end

local cell, index, ends, lease = unpack(KEYS)

local time = call('TIME')
local now = time[1] .. string.format('%06d', time[2])

local function whole(number) return string.format('%.0f', number) end

-- The members of the index for a cell's lists.
local function members(lists, rev, name)
  local found = {}
  local bytes = struct.pack('>I8', tonumber(rev))
  for at = 1, #lists, LIST do
    found[#found + 1] = sub(lists, at, at + LIST - 1) .. bytes .. name
  end
  return found
end

local function mortal(lists, rev, name)
  return struct.pack('>I8', tonumber(rev)) .. string.char(#lists / LIST) .. lists .. name
end

-- Takes some of what has expired out of the index; returns how much.
local function tidy(most)
  local over = call('ZRANGEBYSCORE', ends, '-inf', math.floor(now / 1000), 'LIMIT', 0, most)
  for _, member in ipairs(over) do
    local rev, size = struct.unpack('>I8B', member)
    local lists = sub(member, 10, 9 + size * LIST)
    call('ZREM', index, unpack(members(lists, rev, sub(member, 10 + size * LIST))))
    call('ZREM', ends, member)
  end
  return #over
end

local rev, operation, data, lists, till = unpack(call('HMGET', cell, 'r', 'o', 'd', 'l', 'u'))

-- ARGV: THREAD \0 KEY, token or '', rev that is expected or '', operation, milliseconds to live or '', lists, data or ''
-- to remove, deadline in microseconds or ''. Decides as cells.py does; returns whether the cell is as asked for, the time, and the cell.
if ARGV[1] == 'change' then
  local name, token, expect, asked, ttl_ms, new_lists, new, deadline = unpack(ARGV, 2, 9)
  if token ~= '' and call('HGET', lease, 'token') ~= token then return FENCED end
  if operation == asked or not rev and new == '' then return { 1, now, rev, operation, data } end
  if expect ~= '' and expect ~= (rev or '0') then return { 0, now, rev, operation, data } end
  if deadline ~= '' and tonumber(now) >= tonumber(deadline) then return { 0, now, rev, operation, data } end
  if rev then
    call('ZREM', index, unpack(members(lists, rev, name)))
    if till then call('ZREM', ends, mortal(lists, rev, name)) end
  end
  if new == '' then
    call('UNLINK', cell)
    return { 1, now }
  end
  rev = whole(math.max(tonumber(now), rev and rev + 1 or 0))
  call('HSET', cell, 'd', new, 'r', rev, 'o', asked, 'l', new_lists)
  for _, member in ipairs(members(new_lists, rev, name)) do
    call('ZADD', index, 0, member)
  end
  if ttl_ms == '' then
    call('HDEL', cell, 'u')
    call('PERSIST', cell)
  else
    till = whole(math.floor(now / 1000) + ttl_ms)
    call('HSET', cell, 'u', till)
    call('PEXPIREAT', cell, till)
    call('ZADD', ends, till, mortal(new_lists, rev, name))
  end
  tidy(CLEANED)
  return { 1, now, rev, asked, new }
end

if ARGV[1] == 'read' then return { 1, now, rev, operation, data } end

if ARGV[1] == 'sweep' then
  while tidy(1000) > 0 do
  end
end
