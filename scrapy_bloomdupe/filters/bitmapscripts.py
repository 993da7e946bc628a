"""What does the server do with bitmaps, in one go? Lua, so that no other client comes in between.

The encoding is that of ``bitmaps``. Numbers in Lua are doubles: exact up to 2^53, which no position passes.
"""

from __future__ import annotations

from scrapy_bloomdupe.remote.client import Script

#: First part of an answer.
DONE, EMPTIED, STALE = 0, 1, 2

# A command takes some 8,000 arguments from Lua (LUAI_MAXCSTACK); four for each bit that is set.
_BITS_AT_ONCE = 1900

# A string that grows gets up to a megabyte more than it needs, one that is set gets what it needs; but Lua
# holds it once more.
_MAKING = """
local function make(name, header, size)
  if size <= 8388608 then
    redis.call('SET', name, header .. string.rep('\\0', size - #header))
  else
    redis.call('SETBIT', name, size * 8 - 1, 0)
    redis.call('SETRANGE', name, 0, header)
  end
end
"""

#: Test keys, and set the bits of those that are new.
#:
#: KEYS: the layers of the shards, one shard after the other, oldest first.
#: ARGV: ``add`` or ``test``; then for each shard its number of layers, and for each layer the fixed part of
#: its header and the probes of the shard's keys.
#: Returns {0, for each shard the keys in its newest layer, then 0 or 1 (seen) for each key, shard by shard},
#: {1, number of the key in KEYS} for one that is gone, {2, ...} for a shard that has grown; then nothing was
#: done.
CHECK = Script(
    """
local write = ARGV[1] == 'add'
local at, key = 2, 1
local shards = {}
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  at = at + 1
  local shard = {}
  for i = 1, count do
    local fixed = ARGV[at]
    local header = redis.call('GETRANGE', KEYS[key], 0, 63)
    if #header < 64 or string.sub(header, 1, 48) ~= fixed then return {1, key} end
    if (string.byte(header, 57) == 1) ~= (i < count) then return {2, key} end
    shard[i] = {KEYS[key], struct.unpack('<I4', fixed, 25), ARGV[at + 1]}
    at = at + 2
    key = key + 1
  end
  shards[#shards + 1] = shard
end
local function all_set(layer, keys, first, last)
  local name, hashes, probes = layer[1], layer[2], layer[3]
  local size = 4 + 2 * hashes
  local form = '<I4' .. string.rep('I2', last - first + 1)
  local width = last - first + 1
  local at_once = math.floor(BITS_AT_ONCE / width)
  local found = {}
  for from = 1, #keys, at_once do
    local till = math.min(#keys, from + at_once - 1)
    local get, used = {name}, 1
    for n = from, till do
      local place = keys[n] * size + 1
      local base = 512 + struct.unpack('<I4', probes, place) * 65536
      local cut = {struct.unpack(form, probes, place + 2 * (first - 1))}
      for j = 2, width + 1 do
        get[used + 1] = 'GET'
        get[used + 2] = 'u1'
        get[used + 3] = base + cut[j]
        used = used + 3
      end
    end
    local bits = redis.call('BITFIELD_RO', unpack(get))
    local bit = 1
    for n = from, till do
      local seen = true
      for j = bit, bit + width - 1 do
        if bits[j] == 0 then seen = false break end
      end
      if seen then found[#found + 1] = keys[n] end
      bit = bit + width
    end
  end
  return found
end
local answer = {0}
for _ = 1, #shards do answer[#answer + 1] = 0 end
for number, shard in ipairs(shards) do
  local newest = #shard
  local start = #answer + 1
  local added = 0
  local num_keys = #shard[1][3] / (4 + 2 * shard[1][2])
  for i = 0, num_keys - 1 do answer[start + i] = 0 end
  for index = newest, 1, -1 do
    local layer, asked = shard[index], {}
    for i = 0, num_keys - 1 do
      if answer[start + i] == 0 then asked[#asked + 1] = i end
    end
    -- A few bits tell most new keys.
    local few = math.min(3, layer[2])
    asked = all_set(layer, asked, 1, few)
    if few < layer[2] then asked = all_set(layer, asked, few + 1, layer[2]) end
    for _, i in ipairs(asked) do answer[start + i] = 1 end
  end
  if write then
    local name, hashes, probes = shard[newest][1], shard[newest][2], shard[newest][3]
    local size = 4 + 2 * hashes
    local form = '<I4' .. string.rep('I2', hashes)
    local set, used = {name}, 1
    for i = 0, num_keys - 1 do
      if answer[start + i] == 0 then
        added = added + 1
        local cut = {struct.unpack(form, probes, i * size + 1)}
        local base = 512 + cut[1] * 65536
        for j = 2, hashes + 1 do
          set[used + 1] = 'SET'
          set[used + 2] = 'u1'
          set[used + 3] = base + cut[j]
          set[used + 4] = 1
          used = used + 4
        end
        if used > 4 * BITS_AT_ONCE - 124 then
          redis.call('BITFIELD', unpack(set))
          set, used = {name}, 1
        end
      end
    end
    if used > 1 then redis.call('BITFIELD', unpack(set)) end
    if added > 0 then
      answer[1 + number] = redis.call('BITFIELD', name, 'INCRBY', 'i64', 384, added)[1]
    else
      answer[1 + number] = redis.call('BITFIELD_RO', name, 'GET', 'i64', 384)[1]
    end
  end
end
return answer
""".replace("BITS_AT_ONCE", str(_BITS_AT_ONCE))
)

#: Make a layer if it is not there. KEYS: it. ARGV: the header, 64 bytes, and the size in bytes.
#: Returns the header that is there now.
MAKE = Script(
    _MAKING
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then make(KEYS[1], ARGV[1], tonumber(ARGV[2])) end
return redis.call('GETRANGE', KEYS[1], 0, 63)
"""
)

#: Add a layer to a shard. KEYS: the newest one and the new one. ARGV: the fixed part of the newest, the
#: header of the new one and its size in bytes. Returns as ``CHECK``: {0}, {1, 1} or {2, 1}.
GROW = Script(
    _MAKING
    + """
local header = redis.call('GETRANGE', KEYS[1], 0, 63)
if #header < 64 or string.sub(header, 1, 48) ~= ARGV[1] then return {1, 1} end
if string.byte(header, 57) == 1 then return {2, 1} end
redis.call('DEL', KEYS[2])
make(KEYS[2], ARGV[2], tonumber(ARGV[3]))
redis.call('SETRANGE', KEYS[1], 56, string.char(1))
return {0}
"""
)
