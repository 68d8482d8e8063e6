-- Reads, the third part of the script that redis.lua begins.

local function optional(text) return text ~= '' and sub(text, 2) or nil end

-- Those of the keys that are stored with all that they build on, as keys and what a hash has of them.
local function closure(hash, keys, from, to)
  local found, seen = {}, {}
  for i, head in ipairs(many('HMGET', heads, keys, from, to)) do
    local key = keys[(from or 1) + i - 1]
    while head and not seen[key] do
      seen[key], found[#found + 1] = true, key
      local base, check = base_of(head)
      if not base then break end
      key, head = find(base, check)
    end
  end
  return { found, many('HMGET', hash, found) }
end

local function keys_of(head)
  local _, deltas, rest = parts(head)
  local keys = {}
  for at = deltas + 1, #rest, 16 do
    keys[#keys + 1] = sub(rest, at, at + 15)
  end
  return keys
end

-- What a read lets live on; not on a server that refuses writes.
local function refresh()
  local over = till and next_end(math.floor(now() / 1000)) or till
  if over == till then return end
  local done = redis.pcall('HSET', meta, 'u', over)
  if type(done) ~= 'table' then live_on() end
end

-- ARGV: namespace, id, whether to refresh (1).
if verb == 'load' then
  local ns, id = ARGV[2], ARGV[3]
  if ARGV[4] == '1' then refresh() end
  local score = id ~= '' and call('ZSCORE', order, ns .. '\0' .. optional(id))
  local name = id == '' and call('HGET', meta, 'h:' .. ns) or score and name_of(score)
  local head = name and call('HGET', heads, name)
  if not name or hidden(head) then return false end
  local blobs = batches(mark(string.match(parts(head), '^[^%z]*%z[^%z]*')))
  return { name, head, call('HGET', data, name) or error('TORN'), closure(data, keys_of(head)), blobs, header or '' }
end

-- The `<` of Lua follows the locale of the server.
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- What the order has of a namespace, highest seq first; a ZSCAN that matches takes half as long again.
local function ordered(ns)
  local start, found = ns .. '\0', {}
  for at = 0, call('ZCARD', order) - 1, CHUNK do
    for _, member in ipairs(call('ZREVRANGE', order, at, at + CHUNK - 1)) do
      if sub(member, 1, #start) == start then
        found[#found + 1], found[#found + 2] = member, call('ZSCORE', order, member)
      end
    end
  end
  return found
end

-- ARGV: namespace, id, before, below, limit, whether to refresh (1), whether the hidden rows are wanted (1).
if verb == 'rows' then
  local ns, id, before, below, limit = unpack(ARGV, 2, 6)
  local wants_hidden = ARGV[8] == '1'
  if ARGV[7] == '1' then refresh() end
  ns, id, before, limit = optional(ns), optional(id), optional(before), tonumber(limit)
  local found, bounds = {}, {}
  local function selects(member, score)
    local its_ns, its_id = split(member)
    if (ns and its_ns ~= ns) or (id and its_id ~= id) then return false end
    if below ~= '' and tonumber(score) >= tonumber(below) then return false end
    if not before then return true end
    if bounds[its_ns] == nil then bounds[its_ns] = call('ZSCORE', order, its_ns .. '\0' .. before) end
    local bound = bounds[its_ns]
    if bound then return tonumber(score) < tonumber(bound) end
    return less(its_id, before)
  end
  local function take(page)
    local names, shown, row_heads = {}, {}, {}
    for i = 1, #page, 2 do
      if selects(page[i], page[i + 1]) then names[#names + 1] = name_of(page[i + 1]) end
    end
    for i, head in ipairs(many('HMGET', heads, names)) do
      if hidden(head) == wants_hidden and #found + 3 * #shown < 3 * limit then
        shown[#shown + 1], row_heads[#row_heads + 1] = names[i], head
      end
    end
    for i, body in ipairs(many('HMGET', data, shown)) do
      found[#found + 1], found[#found + 2], found[#found + 3] = shown[i], row_heads[i], body or error('TORN')
    end
  end
  if ns and id then
    local score = call('ZSCORE', order, ns .. '\0' .. id)
    if score then take({ ns .. '\0' .. id, score }) end
    return found
  end
  if ns and wants_hidden then
    take(ordered(ns))
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

if verb == 'fill' then
  local keys = ARGV[2]
  local found = {}
  for i = 3 + keys, #ARGV do
    found[#found + 1] = call('ZSCORE', order, ARGV[i]) and batches(mark(ARGV[i])) or false
  end
  return { closure(data, ARGV, 3, 2 + keys), found }
end

local function outlined() return { call('HGET', meta, 'rev') or '0', call('HGETALL', heads) } end

-- ARGV: namespace of the labels. Heads of the latest rows and of the frames that they need, then how many there are of
-- each kind; the whole outline where that does not tell what else they need, see `retention.tells`.
if verb == 'heads' then
  if #ordered(ARGV[2]) > 0 then return outlined() end
  local names, keys = {}, {}
  local fields = call('HGETALL', meta)
  for i = 1, #fields, 2 do
    if sub(fields[i], 1, 2) == 'h:' then names[#names + 1] = fields[i + 1] end
  end
  local flat = {}
  for i, head in ipairs(many('HMGET', heads, names)) do
    flat[#flat + 1], flat[#flat + 2] = names[i], head or error('TORN')
    local _, deltas = parts(head)
    if deltas > 0 then return outlined() end
    for _, key in ipairs(keys_of(head)) do
      keys[#keys + 1] = key
    end
  end
  local found, frames = unpack(closure(heads, keys))
  for i, key in ipairs(found) do
    flat[#flat + 1], flat[#flat + 2] = key, frames[i]
  end
  return { call('HGET', meta, 'rev') or '0', flat, call('ZCARD', order), call('HLEN', heads) }
end

if verb == 'outline' then return outlined() end
