-- Returns how long this transaction waited for a lock before, and sets how long it does from now on.
SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', %(wait)s, true) AS after;
