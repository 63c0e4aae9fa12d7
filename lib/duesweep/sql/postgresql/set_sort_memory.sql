-- Returns the session's sort memory, set for this transaction only: a million keys sort in memory.
SELECT set_config('work_mem', '128MB', true) AS work_mem;
