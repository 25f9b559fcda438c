"""Other engines, recorded in tinycb's trace: what they decided becomes as visible as what tinycb decides.

    vllm.py          two scheduler classes for vLLM's `scheduler_cls`: imports vLLM
    recorder.py      what they do while vLLM schedules: keep references, nothing more
    events.py        what they hand over
    transcript.py    on another thread: what was kept becomes step records
    explaining.py    with reasons, where they follow from what was seen
    holdings.py      who holds which block
    vllm_header.py   vLLM's configuration as a trace's header, and what cannot be recorded
    texts.py         the text of tokens, put into a trace afterwards
    vllm_settings.py tinycb's configuration as vLLM's arguments; another interpreter that has vLLM
    vllm_job.py      runs a workload on vLLM, in the interpreter that has it: imports vLLM

Nothing else here imports vLLM, torch or an engine, so a process of vLLM needs of tinycb only numpy's company.
"""
