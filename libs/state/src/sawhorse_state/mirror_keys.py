"""Names and scripts of the mirror: what the writer and the readers must agree on.

- `mirror:<kind>` hash, field `namespace/name` (or `name`): the object as `codec` writes it
- `mirror:epoch` the writer's Lease epoch; every write checks it
- `mirror:synced:<kind>` resourceVersion of the last full list under this epoch
- `changes` stream of kind, key, op, resourceVersion and n; `mirror:count` holds the last n

n counts entries without gaps. By it a reader sees that it missed some, be it because the stream was trimmed beyond its
place or because Redis was flushed and written again. Ops: `set`, `del`, and without a key `epoch` (a writer began) and
`synced` (a full list of the kind is in).
"""

EPOCH = "mirror:epoch"
COUNT = "mirror:count"
CHANGES = "changes"

SET = "set"
DELETE = "del"
NEW_EPOCH = "epoch"
SYNCED = "synced"

MAX_CHANGES = 20_000


def objects_key(kind: str) -> str:
    """The hash of a kind."""
    return f"mirror:{kind}"


def synced_key(kind: str) -> str:
    """The mark of a kind's full list."""
    return f"mirror:synced:{kind}"


# KEYS: epoch, changes, count, then the synced marks to remove. ARGV: epoch, most changes kept, '1' when this writer has
# begun before. An equal epoch is another's: a Lease that was deleted counts from the start again.
# Returns {1 when it is ours now, the epoch in force}.
BEGIN = """
local current = redis.call('GET', KEYS[1])
if current and tonumber(current) > tonumber(ARGV[1]) then return {0, current} end
if current == ARGV[1] and ARGV[3] ~= '1' then return {0, current} end
redis.call('SET', KEYS[1], ARGV[1])
for i = 4, #KEYS do redis.call('DEL', KEYS[i]) end
local n = redis.call('INCR', KEYS[3])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'kind', '', 'key', '', 'op', 'epoch', 'rv', ARGV[1], 'n', n)
return {1, ARGV[1]}
"""

# KEYS: epoch, changes, count, the kind's hash. ARGV: epoch, most changes kept, kind, then of each change: key, op,
# resourceVersion, value. Equal values and deletions of what is not there change nothing and are not told.
# Returns {epoch in force or '', number of changes}.
WRITE = """
local current = redis.call('GET', KEYS[1])
if current ~= ARGV[1] then return {current or '', 0} end
local n = redis.call('GET', KEYS[3]) or '0'
n = tonumber(n)
local before = n
for i = 4, #ARGV, 4 do
  local changed
  if ARGV[i + 1] == 'set' then
    changed = redis.call('HGET', KEYS[4], ARGV[i]) ~= ARGV[i + 3]
    if changed then redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 3]) end
  else
    changed = redis.call('HDEL', KEYS[4], ARGV[i]) == 1
  end
  if changed then
    n = n + 1
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*',
      'kind', ARGV[3], 'key', ARGV[i], 'op', ARGV[i + 1], 'rv', ARGV[i + 2], 'n', n)
  end
end
if n ~= before then redis.call('SET', KEYS[3], string.format('%d', n)) end
return {current, n - before}
"""

# KEYS: epoch, changes, count, the kind's synced mark. ARGV: epoch, most changes kept, kind, resourceVersion.
MARK_SYNCED = """
local current = redis.call('GET', KEYS[1])
if current ~= ARGV[1] then return current or '' end
redis.call('SET', KEYS[4], ARGV[4])
local n = redis.call('INCR', KEYS[3])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*',
  'kind', ARGV[3], 'key', '', 'op', 'synced', 'rv', ARGV[4], 'n', n)
return current
"""

# KEYS: epoch, changes, count, then the synced marks. Returns {epoch or '', last id, last n, the marks or ''}.
HEAD = """
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
local id = '0-0'
if last[1] then id = last[1][1] end
local marks = {}
for i = 4, #KEYS do marks[i - 3] = redis.call('GET', KEYS[i]) or '' end
return {redis.call('GET', KEYS[1]) or '', id, redis.call('GET', KEYS[3]) or '0', marks}
"""
