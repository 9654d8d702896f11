"""A machine that executes PTX on NumPy, wide: threads that stand at one instruction run it as one operation.

    device         loads a module, binds a plan, runs its launches, gives an Outcome
    image          module-scope variables and their first contents; params: kernel parameters as bytes
    decode         instructions made into closures, once; names, operands: what names and operands stand for
      builders     by kind of instruction: plain, transfer, atomics, asynccopy, mbarrier, flow
      semantics    what register-to-register instructions compute
      definite     which registers may be read before anything was written; registers: reads that do
    machine        one launch: waves of blocks, budgets, notices; chip: what a chip holds and refuses
    scheduler      which threads run next; wave: all that they hold; lanes: some of them
      …            warps, barriers, calls, externs, special: what it needs for each
      livelock     proof that threads spin for ever; stuck: who waits for whom
    memory         bytes of every space; access: from addresses to bytes; whereabouts, faults: what is wrong

What it does not do yet: clusters of several blocks, bulk copies and tensor maps, wgmma, tcgen05. A launch or a
thread that gets there ends in CannotJudge. It has no caches and no clock speed, and a race
shows only where one of its orders of warps (sandbox.device.Order) makes a difference.
"""
