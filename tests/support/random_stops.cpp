// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Stops threads at random places, as a busy machine does: scripts/stress.sh preloads this library
// into test programs. It stands before functions at which another thread or rank may overtake this
// one, and calls them after (for locks, sometimes before) a pause.
//
//   COHORT_STOPS_SEED     a number. The same seed draws the same pauses for a thread that makes the
//                         same calls; how threads and ranks interleave stays the machine's choice.
//   COHORT_STOPS_PIDS     a folder in which each process leaves a file with its number as name, for
//                         the script, which stops whole processes
//
// Where the executable calls from is what matters: at each place the first calls are the likeliest
// to be delayed, and later ones less and less, so that a loop that polls is not all that is ever
// stopped. Pauses are up to 300 ms, most of them short, and take at most a third of a process's
// time.
//
// Only programs whose name ends in "_test" are stopped, not the launchers and shells around them.
// Handles of MPI are passed on as they come: a pointer has room for any of them.

#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

constexpr double shortest = 20e-6;  // seconds
constexpr double longest = 0.3;

std::atomic<bool> active{false};
std::uintptr_t code_begin = 0;  // of the executable
std::uintptr_t code_end = 0;
std::uint64_t seed = 0;
double started = 0;
std::atomic<std::int64_t> stopped{0};  // nanoseconds, all threads
std::atomic<std::uint32_t> threads{0};
std::atomic<std::uint32_t> visits[4096];

double now() {
  timespec time;
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t draw() {
  static thread_local std::uint64_t state = 0;
  if (state == 0) state = mixed(seed ^ (std::uint64_t{threads.fetch_add(1) + 1} << 32));
  return mixed(state++);
}

/// Perhaps pauses, for a call that comes from `from`.
void perhaps_stop(const void* from) {
  if (!active.load(std::memory_order_relaxed)) return;
  const auto place = reinterpret_cast<std::uintptr_t>(from);
  if (place < code_begin || place >= code_end) return;
  const std::uint32_t seen = visits[mixed(place - code_begin) % 4096].fetch_add(1);
  if (draw() % (8 + std::uint64_t{seen}) != 0) return;
  const double spent = 1e-9 * static_cast<double>(stopped.load(std::memory_order_relaxed));
  if (spent > 0.1 + (now() - started) / 3) return;

  // As many pauses between 20 and 40 us as between 100 and 200 ms.
  const double part = static_cast<double>(draw() >> 11) / 9007199254740992.0;
  const double pause = shortest * std::pow(longest / shortest, part);
  stopped.fetch_add(static_cast<std::int64_t>(pause * 1e9), std::memory_order_relaxed);
  const int error = errno;
  const timespec time{0, static_cast<long>(pause * 1e9)};
  ::syscall(SYS_nanosleep, &time, nullptr);
  errno = error;
}

/// The function that this library stands before.
template <class Function>
Function* next(std::atomic<Function*>& kept, const char* name) {
  Function* found = kept.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
    if (found == nullptr) {
      std::fprintf(stderr, "random_stops: there is no %s\n", name);
      std::abort();
    }
    kept.store(found, std::memory_order_release);
  }
  return found;
}

int note_executable(dl_phdr_info* info, std::size_t, void*) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    code_begin = info->dlpi_addr + part.p_vaddr;
    code_end = code_begin + part.p_memsz;
  }
  return 1;  // the first one is the executable
}

std::uint64_t number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

void leave_number() {
  const char* const folder = std::getenv("COHORT_STOPS_PIDS");
  if (folder == nullptr) return;
  char path[4096];
  std::snprintf(path, sizeof path, "%s/%d", folder, static_cast<int>(::getpid()));
  if (std::FILE* const file = std::fopen(path, "w")) std::fclose(file);
}

[[gnu::constructor]] void begin() {
  const char* const name = program_invocation_short_name;
  const std::size_t length = std::strlen(name);
  if (length < 5 || std::strcmp(name + length - 5, "_test") != 0) return;
  if (std::getenv("COHORT_STOPS_SEED") == nullptr) return;
  const std::uint64_t rank = number("OMPI_COMM_WORLD_RANK") + number("PMI_RANK");
  seed = mixed(number("COHORT_STOPS_SEED") + (rank << 48));
  started = now();
  ::dl_iterate_phdr(note_executable, nullptr);
  leave_number();
  active = true;
}

}  // namespace

/// Defines `name`, which pauses perhaps and then calls the function of that name that comes next.
#define COHORT_STOPS(name, parameters, arguments)                 \
  extern "C" [[gnu::visibility("default")]] int name parameters { \
    using function = int parameters;                              \
    static std::atomic<function*> kept{nullptr};                  \
    perhaps_stop(__builtin_return_address(0));                    \
    return next<function>(kept, #name) arguments;                 \
  }

COHORT_STOPS(pthread_mutex_unlock, (pthread_mutex_t * lock), (lock))
COHORT_STOPS(pthread_cond_signal, (pthread_cond_t * what), (what))
COHORT_STOPS(pthread_cond_broadcast, (pthread_cond_t * what), (what))
COHORT_STOPS(epoll_wait, (int queue, epoll_event* events, int most, int timeout),
             (queue, events, most, timeout))
COHORT_STOPS(poll, (pollfd * files, nfds_t count, int timeout), (files, count, timeout))

/// Before it takes the lock, or while it holds it.
extern "C" [[gnu::visibility("default")]] int pthread_mutex_lock(pthread_mutex_t* lock) {
  using function = int(pthread_mutex_t*);
  static std::atomic<function*> kept{nullptr};
  const void* const from = __builtin_return_address(0);
  perhaps_stop(from);
  const int result = next<function>(kept, "pthread_mutex_lock")(lock);
  perhaps_stop(from);
  return result;
}

using handle = void*;  // of MPI: a pointer or an int

COHORT_STOPS(MPI_Test, (handle request, int* done, void* status), (request, done, status))
COHORT_STOPS(MPI_Testany, (int count, handle requests, int* which, int* done, void* status),
             (count, requests, which, done, status))
COHORT_STOPS(MPI_Testsome, (int count, handle requests, int* found, int* which, void* statuses),
             (count, requests, found, which, statuses))
COHORT_STOPS(MPI_Iprobe, (int source, int tag, handle comm, int* found, void* status),
             (source, tag, comm, found, status))
COHORT_STOPS(MPI_Improbe,
             (int source, int tag, handle comm, int* found, void* message, void* status),
             (source, tag, comm, found, message, status))
COHORT_STOPS(MPI_Isend,
             (const void* data, int count, handle type, int to, int tag, handle comm,
              void* request),
             (data, count, type, to, tag, comm, request))
COHORT_STOPS(MPI_Irecv,
             (void* data, int count, handle type, int from, int tag, handle comm, void* request),
             (data, count, type, from, tag, comm, request))
COHORT_STOPS(MPI_Iallreduce,
             (const void* in, void* out, int count, handle type, handle op, handle comm,
              void* request),
             (in, out, count, type, op, comm, request))
COHORT_STOPS(MPI_Ibarrier, (handle comm, void* request), (comm, request))
COHORT_STOPS(MPI_Comm_idup, (handle comm, void* made, void* request), (comm, made, request))
COHORT_STOPS(MPI_Comm_free, (void* comm), (comm))
