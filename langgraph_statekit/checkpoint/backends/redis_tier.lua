-- What is noted for a cold store, the last part of the script that redis.lua begins. Its verbs are those of `Tier`.
--
-- Once a saver with a cold store was here, every script notes what it changes, whoever calls it.
--   tier     hash of a thread, which outlives it until the cold store knows: n = thread, b = when this life of it began,
--            e = epoch, c = whether it is complete (1), m = how much of what was touched has gone from the list, r = 1 if
--            it ever had a row, x = when the last life ended that the cold store may have, g = generation of the cold
--            head that has what was uploaded; g stays for a day after the thread went, and d = when its life began
--   touched  list of a thread: what changed since. '1' and '3', NAMESPACE \0 ID: a row, the writes of a checkpoint;
--            '2', key: a frame; '0': header or times; '*': all of it
--   tiers    zset of a bucket: thread -> when what is noted changed first (microseconds), or, if all is in the cold store
--            and the thread may be dropped, since when, negative; \0 -> 0 tells that changes are noted here, \0\0 -> 0
--            that those of all threads are
-- While something is noted that would be lost with a thread, it does not expire.

local function is_here(thread)
  local here = call('EXISTS', meta) == 1
  if here and not noted then begin(thread) end
  return here
end

local function state(here)
  local found = call('HMGET', tier, 'b', 'e', 'c', 'r', 'x', 'g')
  found[7], found[8] = here and 1 or 0, call('EXISTS', touched)
  return found
end

-- ARGV of all verbs: thread, then what they are given.
local thread = ARGV[2]

-- A thread of which the server lost a key goes on from the cold store, if all of it was brought there. Else nobody
-- brings there what is left, and it counts as here, where each call tells of it.
local lost = (verb == 'tier_state' or verb == 'tier_changes') and torn()
if lost then
  local born, epoch, known = unpack(call('HMGET', tier, 'b', 'e', 'g'))
  if born and (epoch or '') ~= '' and call('EXISTS', touched) == 0 then
    discard(thread)
    part(thread)
    call('HSET', tier, 'd', born, 'g', known or 0)
    leave(thread)
    lost = false
  elseif verb == 'tier_changes' then
    return { err = 'TORN' }
  else
    lost = born
  end
end

if verb == 'tier_state' then return state(is_here(thread) or lost) end

-- ARGV: whether all is asked for (1). Returns state, fields of meta, mark, order, rows as name, head and body, members of
-- those that are gone, keys and data of frames, members of writes and their batches.
if verb == 'tier_changes' then
  if not is_here(thread) then
    local born, ended, rows, whole_life = unpack(call('HMGET', tier, 'b', 'x', 'r', 'c'))
    if not ended and not (born and (rows or whole_life == '1')) then
      discard(thread)
      finish(thread)
    end
    return false
  end
  local found = state(true)
  local rows, keys, asked = {}, {}, {}
  local everything = ARGV[3] == '1'
  local entries = call('LRANGE', touched, 0, -1)
  for _, entry in ipairs(entries) do
    local list = ({ ['1'] = rows, ['2'] = keys, ['3'] = asked })[sub(entry, 1, 1)]
    if list then list[sub(entry, 2)] = true end
    everything = everything or entry == '*'
  end
  if everything then
    for _, member in ipairs(call('ZRANGE', order, 0, -1)) do
      rows[member], asked[member] = true, true
    end
    for _, key in ipairs(call('HKEYS', heads)) do
      if #key >= 16 then keys[key] = true end
    end
    for _, field in ipairs(call('HKEYS', meta)) do
      if sub(field, 1, 2) == 'e:' then asked[sub(field, 3)] = true end
    end
  end
  local function listed(set)
    local list = {}
    for name in pairs(set) do
      list[#list + 1] = name
    end
    return list
  end
  local members, names, gone, packed, blobs = listed(rows), {}, {}, {}, {}
  for i, score in ipairs(many('ZMSCORE', order, members)) do
    if score then names[#names + 1] = name_of(score) else gone[#gone + 1] = members[i] end
  end
  local row_heads, bodies = many('HMGET', heads, names), many('HMGET', data, names)
  for i, name in ipairs(names) do
    packed[3 * i - 2], packed[3 * i - 1], packed[3 * i] = name, row_heads[i], bodies[i]
  end
  keys, asked = listed(keys), listed(asked)
  for i, member in ipairs(asked) do
    blobs[i] = batches(mark(member))
  end
  local places = (everything or found[3] ~= '1') and call('ZRANGE', order, 0, -1, 'WITHSCORES') or {}
  local fields = call('HMGET', meta, 'seq', 'by', 't', 'u', 'k')
  local upto = (call('HGET', tier, 'm') or 0) + #entries
  return { found, fields, upto, places, packed, gone, keys, many('HMGET', data, keys), asked, blobs }
end

-- ARGV: born, mark, epoch, gen, whether it is complete (1).
if verb == 'tier_uploaded' then
  local born, upto, epoch, gen, whole_life = unpack(ARGV, 3, 7)
  local its, before, was, last, ended, known = unpack(call('HMGET', tier, 'b', 'e', 'c', 'm', 'x', 'g'))
  if not noted or its ~= born then return end
  local done = upto - (last or 0)
  if done > 0 then
    call('LTRIM', touched, done, -1)
    call('HINCRBY', tier, 'm', done)
  end
  if ended and tonumber(ended) < tonumber(born) then call('HDEL', tier, 'x') end
  if whole_life ~= '1' and was == '1' and before == epoch then whole_life = '1' end
  call('HSET', tier, 'e', epoch, 'c', whole_life, 'g', whole(math.max(gen, known or 0)))
  if call('EXISTS', touched) == 1 then
    call('ZADD', tiers, now(), thread)
  elseif whole_life == '1' and not ttl then
    call('ZADD', tiers, '-' .. now(), thread)
  else
    call('ZREM', tiers, thread)
  end
  local over = till
  if not version and not header then over = whole(math.floor(now() / 1000) + ORPHANS_MS) end
  call('ZADD', index, over or 0, thread)
  if not version then over = whole(math.floor(now() / 1000) + ORPHANS_MS) end
  if over and not unsafe() then expire(over) end
  return
end

-- ARGV: born, gen, whether also a thread that is leased, or has a time to live (1).
if verb == 'tier_evict' then
  local born, gen, leased = unpack(ARGV, 3, 5)
  if not noted or call('HGET', tier, 'b') ~= born or call('EXISTS', touched) == 1 then return 0 end
  if leased ~= '1' and (ttl or tonumber(call('HGET', lease, 'until') or 0) > tonumber(now())) then return 0 end
  discard(thread)
  part(thread)
  call('HSET', tier, 'd', born, 'g', whole(math.max(gen, call('HGET', tier, 'g') or 0)))
  leave(thread)
  return 1
end

-- ARGV: epoch, gen, numbers of the parts that follow (fields of meta, writes without a row, order, heads, data, writes),
-- the parts.
if verb == 'tier_restore' then
  local epoch, gen = ARGV[3], ARGV[4]
  local born, ended, rows, whole_life, stub, last = unpack(call('HMGET', tier, 'b', 'x', 'r', 'c', 'd', 'g'))
  if call('EXISTS', meta) == 1 or ended or rows or whole_life == '1' or tonumber(last or 0) > tonumber(gen) then return 0 end
  local at = whole(math.max(now(), math.max(born or 0, stub or 0) + 1))
  call('HSET', tier, 'n', thread, 'b', at, 'e', epoch, 'c', 1, 'g', gen)
  call('HDEL', tier, 'm')
  call('PERSIST', tier)
  call('UNLINK', order, heads, data, writes, touched)
  local from = 11
  local function take(command, key, i)
    local to = from - 1 + ARGV[4 + i]
    if command then many(command, key, ARGV, from, to) end
    from = to + 1
  end
  take('HSET', meta, 1)
  for i = from, from - 1 + ARGV[6] do
    call('HSET', meta, 'e:' .. ARGV[i], now())
  end
  take(nil, nil, 2)
  for i, key in ipairs({ order, heads, data, writes }) do
    take(key == order and 'ZADD' or 'HSET', key, 2 + i)
  end
  call('HSET', meta, 'z', 1, 'rev', now())
  note_writes()
  call('ZADD', tiers, 0, '\0')
  local over, sealed
  version, ttl, over, sealed = unpack(call('HMGET', meta, 'v', 't', 'u', 'k'))
  if version then call('HSET', tier, 'r', 1) end
  if ttl then call('HSET', meta, 'n', thread) else call('ZADD', tiers, '-' .. now(), thread) end
  if not version then over = whole(math.floor(now() / 1000) + ORPHANS_MS) end
  call('ZADD', index, (version or not sealed) and over or 0, thread)
  if over then expire(over) end
  return 1
end

-- KEYS: the eleventh is the index of the bucket's leases.
if verb == 'tier_end' then
  local born, ended = unpack(call('HMGET', tier, 'b', 'x'))
  local had = call('EXISTS', meta) == 1 or born or ended
  call('UNLINK', lease)
  call('ZREM', KEYS[11], thread)
  discard(thread)
  part(thread)
  call('HSET', tier, 'x', whole(math.max(now(), math.max(born or 0, ended or 0))))
  leave(thread)
  return had and 1 or 0
end

-- ARGV: born, gen.
if verb == 'tier_buried' then
  local upto, gen = tonumber(ARGV[3]), tonumber(ARGV[4])
  local born, ended, stub, last = unpack(call('HMGET', tier, 'b', 'x', 'd', 'g'))
  if ended and tonumber(ended) <= upto then call('HDEL', tier, 'x') end
  local here = call('EXISTS', meta) == 1
  if not here and (not born or tonumber(born) <= upto) then
    discard(thread)
    part(thread)
  end
  call('HSET', tier, 'd', whole(math.max(upto, stub or 0)), 'g', whole(math.max(gen, last or 0)))
  if not here then leave(thread) end
  return
end

-- ARGV: born.
if verb == 'tier_forget' and noted and call('HGET', tier, 'b') == ARGV[3] then
  discard(thread)
  part(thread)
  leave(thread)
end
