// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Linked into programs that run on several ranks: more ranks than cores are usual in tests, and
// MPICH on UCX waits without ever letting another process have the core, so that each of its
// blocking calls may take as long as a time slice of the kernel. The linker lets the MPI library
// find this function in the program before UCX's own if it is linked to UCX; with other MPIs nobody
// calls it.
#include <dlfcn.h>
#include <sched.h>

#include <cstdlib>

extern "C" unsigned ucp_worker_progress(void* worker) {
  using progress = unsigned (*)(void*);
  static auto const real = reinterpret_cast<progress>(::dlsym(RTLD_NEXT, "ucp_worker_progress"));
  if (real == nullptr) std::abort();  // UCX has been loaded where nobody can find it
  constexpr int looks_before_yield = 16;
  thread_local int looks_at_nothing = 0;
  unsigned const events = real(worker);
  if (events != 0) {
    looks_at_nothing = 0;
  } else if (++looks_at_nothing == looks_before_yield) {
    looks_at_nothing = 0;
    ::sched_yield();
  }
  return events;
}
