"""The Lua scripts of Redis locks. Each operation is one script: atomic, and one round trip.

Keys of a lock, all with the same hash tag, so that they share a slot of a cluster (L is ``lakelatch:{NAME}``):

    L              the holder: owner, token, since (server's milliseconds), then JSON; expires with the lease
    L:token        the counter of tokens; never expires, outlives the lock
    L:queue        list of waiters in the order they came; the dead among them go when their turn comes
    L:w:OWNER      ticket of a waiter: lease, least token, JSON; expires soon unless the waiter comes again
    L:go:OWNER     list of one element, the token: where a waiter blocks (BLPOP) until the lock is handed to it
    L:freed        the last owner that released it, for a minute: answers a release whose reply was lost
    L:breaks       list of the last breaks, as JSON

Hand-over: the script that ends a grant gives the lock to the first waiter with a live ticket, for
the lease that it asked for, so no other contender can come between. A grantee that died has not
taken its element from ``L:go:OWNER``: the next waiter finds the element there, and takes the
grant back, which is safe because no process knew of it.

Only L is declared to a script; the rest follows from it and is in the same slot. Owners are unique for each request,
which makes every script safe to send again after a lost reply.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the name by which the server knows it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode()).hexdigest())  # noqa: S324 (Redis's own name)


# A living grantee takes its element at once, or well within this time if it was between two blocking calls.
UNCLAIMED_MS = 1_000
FREED_MS = 60_000  # longer than a release is tried again
GONE_MS = 60_000  # a request that a stopped server runs late, after its sender has given up, must find this

_COMMON = """
local lock = KEYS[1]
local counter, queue = lock .. ':token', lock .. ':queue'

local function now_ms()
  local t = redis.call('time')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function is(value, start)
  return value and string.sub(value, 1, #start) == start
end

local function grant(id, lease_ms, above, about)
  local token = redis.call('incr', counter)
  if token <= above then
    token = above + 1
    redis.call('set', counter, string.format('%.0f', token))
  end
  local value = string.format('%s\\n%.0f\\n%.0f\\n%s', id, token, now_ms(), about)
  redis.call('set', lock, value, 'px', lease_ms)
  return token
end

-- To the first waiter that is alive; returns it and its token, or nothing when nobody waits.
local function pass_on()
  while true do
    local id = redis.call('lpop', queue)
    if not id then return nil end
    local ticket = redis.call('get', lock .. ':w:' .. id)
    if ticket and ticket ~= 'gone' then
      local lease_ms, above, about = string.match(ticket, '^(%d+) (%d+) (.*)$')
      local token = grant(id, lease_ms, tonumber(above), about)
      redis.call('del', lock .. ':w:' .. id)
      redis.call('rpush', lock .. ':go:' .. id, string.format('%.0f', token))
      redis.call('pexpire', lock .. ':go:' .. id, lease_ms)
      return id, token
    end
  end
end
"""

# ARGV: owner, lease ms, least token - 1, JSON, life of the ticket in ms (0: do not line up).
# Answers the token, or minus the milliseconds until the holder's lease ends.
ACQUIRE = Script(
    _COMMON
    + f"""
local id, lease_ms, above, about = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local mine, go = lock .. ':w:' .. id, lock .. ':go:' .. id
local ticket = redis.call('get', mine)
if ticket == 'gone' then return -1 end
local value = redis.call('get', lock)
if is(value, id .. '\\n') then
  redis.call('pexpire', lock, lease_ms)
  redis.call('del', go)
  return tonumber(string.match(value, '^[^\\n]*\\n(%d+)'))
end
if value and ticket then
  local holder, since = string.match(value, '^([^\\n]*)\\n%d+\\n(%d+)')
  local unclaimed = lock .. ':go:' .. holder
  if redis.call('exists', unclaimed) == 1 and now_ms() - since > {UNCLAIMED_MS} then
    redis.call('del', unclaimed, lock)
    value = nil
  end
end
if not value then
  local head, token = pass_on()
  if not head then
    if ticket then redis.call('del', mine) end
    return grant(id, lease_ms, above, about)
  end
  if head == id then
    redis.call('del', go)
    return token
  end
end
if ARGV[5] ~= '0' then
  if not ticket then redis.call('rpush', queue, id) end
  redis.call('set', mine, lease_ms .. ' ' .. ARGV[3] .. ' ' .. about, 'px', ARGV[5])
end
return -math.max(redis.call('pttl', lock), 1)
"""
)

# ARGV: owner and token as the lock holds them. Answers 1 when that grant has been released, now or before.
RELEASE = Script(
    _COMMON
    + f"""
local freed = lock .. ':freed'
local value = redis.call('get', lock)
if is(value, ARGV[1]) then
  redis.call('set', freed, ARGV[1], 'px', {FREED_MS})
  redis.call('del', lock)
  pass_on()
  return 1
end
if not value then pass_on() end
if redis.call('get', freed) == ARGV[1] then return 1 end
return 0
"""
)

# ARGV: owner and token, lease ms. Answers 1 when the grant was still there and has its whole lease again.
RENEW = Script(
    _COMMON
    + """
if not is(redis.call('get', lock), ARGV[1]) then return 0 end
return redis.call('pexpire', lock, ARGV[2])
"""
)

# ARGV: owner, '1' when a request may still be on its way. Leaves nothing of that request.
LEAVE = Script(
    _COMMON
    + f"""
local id = ARGV[1]
if ARGV[2] == '1' then
  redis.call('set', lock .. ':w:' .. id, 'gone', 'px', {GONE_MS})
else
  redis.call('del', lock .. ':w:' .. id)
end
redis.call('lrem', queue, 1, id)
redis.call('del', lock .. ':go:' .. id)
if is(redis.call('get', lock), id .. '\\n') then
  redis.call('del', lock)
  pass_on()
end
return 1
"""
)

# ARGV: token, record as JSON, how many records are kept. Answers 1 when that token's grant has been ended.
BREAK = Script(
    _COMMON
    + """
local holder, token = string.match(redis.call('get', lock) or '', '^([^\\n]*)\\n(%d+)')
local breaks = lock .. ':breaks'
if token ~= ARGV[1] then
  return redis.call('lindex', breaks, -1) == ARGV[2] and 1 or 0  -- sent again after a lost reply
end
redis.call('rpush', breaks, ARGV[2])
redis.call('ltrim', breaks, -tonumber(ARGV[3]), -1)
redis.call('del', lock, lock .. ':go:' .. holder)
pass_on()
return 1
"""
)

# Answers the lock's value, milliseconds left, the server's time in milliseconds, and the living waiters.
INSPECT = Script(
    _COMMON
    + """
local waiting = {}
for _, id in ipairs(redis.call('lrange', queue, 0, 999)) do
  local ticket = redis.call('get', lock .. ':w:' .. id)
  if ticket and ticket ~= 'gone' then table.insert(waiting, id) end
end
return {redis.call('get', lock), redis.call('pttl', lock), string.format('%.0f', now_ms()), waiting}
"""
)
