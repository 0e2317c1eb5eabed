// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The calls of NCCL's double, its groups, and the thread that launches; nccl_control.hpp says what
// it is and what it is not.
#include "support/fake_gpu/internal.hpp"
#include "support/fake_gpu/nccl_control.hpp"
#include "support/fake_gpu/nccl_internal.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

namespace fake_nccl {
namespace {

using namespace std::chrono_literals;
namespace internal = fake_gpu::internal;
using clock = std::chrono::steady_clock;
using lock = std::unique_lock<std::mutex>;
using shared_communicator = std::shared_ptr<communicator>;

constexpr const char* prefix = "cohort_fake_nccl.";

/// Something in progress. `step` is asked again and again until it has a result.
struct job {
  std::vector<shared_communicator> of;
  std::function<std::optional<ncclResult_t>()> step;
  bool launches = false;
  clock::time_point not_before;
  std::optional<ncclResult_t> result;
};

struct library {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, shared_communicator> communicators;
  std::vector<shared_communicator> graveyard;  // so that no handle's address is used again
  std::vector<std::shared_ptr<job>> jobs;
  std::thread launcher;
  bool stopping = false;
  bool swept = false;
  bool held = false;
  int blocked = 0;
  int version = NCCL_VERSION_CODE;
  std::string host;
  std::mt19937_64 random{1};
  unsigned least_delay = 100;
  unsigned most_delay = 1000;
  std::vector<std::string> launched;
  std::map<std::string, std::pair<ncclResult_t, int>> failures;
  std::map<std::string, std::uint64_t> calls;
  std::map<const void*, std::size_t> registered;
  std::uint64_t handles = 0;
};

library& the() {
  static library& instance = *new library;
  return instance;
}

/// Texts of errors have a lock of their own, because kernels write them.
struct error_texts {
  std::mutex mutex;
  std::string last;
  std::map<const communicator*, std::string> of;
};

error_texts& texts() {
  static error_texts& instance = *new error_texts;
  return instance;
}

ncclResult_t fail(ncclResult_t code, const std::string& text) {
  const std::lock_guard hold(texts().mutex);
  texts().last = text;
  return code;
}

struct posted {
  shared_communicator of;
  operation what;
  cudaStream_t stream;
};

struct group_of_thread {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<posted> operations;
  std::vector<std::shared_ptr<job>> makings;
  std::vector<shared_communicator> endings;  // destroyed or aborted
};

thread_local group_of_thread group;

// ---- the thread that launches
// --------------------------------------------------------------------

void finish(job& one, ncclResult_t code) {
  one.result = code;
  for (const auto& each : one.of) {
    int expected = ncclInProgress;
    each->state.compare_exchange_strong(expected, code);
  }
}

void launcher() {
  library& lib = the();
  lock hold(lib.mutex);
  while (!lib.stopping) {
    if (lib.jobs.empty()) {
      lib.changed.wait(hold);
      continue;
    }
    auto due = lib.jobs;
    std::shuffle(due.begin(), due.end(), lib.random);
    for (const auto& one : due) {
      const auto aborted = [](const auto& of) { return of->aborted.load(); };
      if (one->not_before > clock::now()) continue;
      if (one->launches && lib.held && std::none_of(one->of.begin(), one->of.end(), aborted)) {
        continue;
      }
      if (const auto code = one->step()) {
        finish(*one, *code);
        lib.jobs.erase(std::find(lib.jobs.begin(), lib.jobs.end(), one));
        lib.changed.notify_all();
      }
    }
    lib.changed.wait_for(hold, 100us);
  }
}

void restarted() {
  library& lib = the();
  std::thread old;
  {
    const lock hold(lib.mutex);
    lib.stopping = true;
    lib.changed.notify_all();
    old = std::move(lib.launcher);
  }
  if (old.joinable()) old.join();
  const lock hold(lib.mutex);
  for (const auto& one : lib.jobs) finish(*one, ncclInternalError);
  for (const auto& [handle, one] : lib.communicators) {
    if (one->linked && one->mapping) one->mapping->unlink();
    one->gone = true;
  }
  forget_waits();
  lib.jobs.clear();
  lib.communicators.clear();
  lib.graveyard.clear();
  lib.launched.clear();
  lib.failures.clear();
  lib.calls.clear();
  lib.registered.clear();
  lib.swept = false;
  lib.held = false;
  lib.version = NCCL_VERSION_CODE;
  lib.host.clear();
  lib.random.seed(1);
  lib.least_delay = 100;
  lib.most_delay = 1000;
  lib.stopping = false;
  lib.changed.notify_all();
  const std::lock_guard hold_texts(texts().mutex);
  texts().of.clear();
  texts().last.clear();
}

/// What every call begins with: it is counted, and may be made to fail.
ncclResult_t enter(const char* function, lock&) {
  library& lib = the();
  internal::at_restart(&restarted);
  ++lib.calls[function];
  const auto found = lib.failures.find(function);
  if (found != lib.failures.end() && found->second.second > 0) {
    --found->second.second;
    return fail(found->second.first, std::string(function) + " fails as the test wants");
  }
  return ncclSuccess;
}

template <class Predicate>
void block(lock& hold, Predicate until) {
  library& lib = the();
  ++lib.blocked;
  while (!until()) lib.changed.wait_for(hold, 500us);
  --lib.blocked;
}

bool device_lost(const communicator& of) {
  return internal::state(of.device) != cudaSuccess ||
         internal::generation(of.device) != of.generation;
}

bool idle(const communicator& of) {
  return of.kernels_ended.load() == of.kernels_launched.load() || device_lost(of);
}

bool device_idle(int device) {
  for (const auto& [handle, one] : the().communicators) {
    if (one->device == device && !idle(*one)) return false;
  }
  return true;
}

shared_communicator find(ncclComm_t handle) {
  const auto found = the().communicators.find(handle);
  if (found != the().communicators.end()) return found->second;
  if (handle != nullptr) internal::fault("a call for a communicator that is destroyed or none");
  fail(ncclInvalidArgument, "not a communicator");
  return nullptr;
}

/// Nothing may be called for a device while something of it is in progress.
void check_order(const char* function, int device) {
  for (const auto& [handle, one] : the().communicators) {
    if (one->device != device || one->state.load() != ncclInProgress) continue;
    const auto of_group = [&](const auto& making) {
      return std::find(making->of.begin(), making->of.end(), one) != making->of.end();
    };
    if (std::any_of(group.makings.begin(), group.makings.end(), of_group)) continue;
    internal::fault(std::string(function) + " was called while " + one->name +
                    " is in progress on device " + std::to_string(device));
  }
}

ncclResult_t ensure_ready(const communicator& of) {
  const auto state = static_cast<ncclResult_t>(of.state.load());
  if (state == ncclInProgress) {
    return fail(ncclInvalidArgument,
                of.name + " is used before the previous operation returned ncclSuccess");
  }
  return state;
}

void begin(const std::shared_ptr<job>& one) {
  library& lib = the();
  for (const auto& each : one->of) {
    int expected = ncclSuccess;
    each->state.compare_exchange_strong(expected, ncclInProgress);
  }
  std::uniform_int_distribution<unsigned> delay(lib.least_delay, lib.most_delay);
  one->not_before = clock::now() + std::chrono::microseconds(delay(lib.random));
  lib.jobs.push_back(one);
  if (!lib.launcher.joinable()) lib.launcher = std::thread(launcher);
  lib.changed.notify_all();
}

// ---- launching
// -----------------------------------------------------------------------------------

/// The kernels of one group, and where they go.
struct launch {
  shared_communicator of;
  std::shared_ptr<kernel> what;
  std::vector<cudaStream_t> streams;
  clock::time_point begin = clock::now();
  bool told = false;
  bool dropped = false;

  /// The ranks (bits) that have not called their part of it yet.
  std::uint32_t missing() const {
    const communicator& c = *of;
    std::uint32_t made = 0;
    for (int i = 0; i < c.ranks && !what->collectives.empty(); ++i) {
      if (c.shared->ranks[i].connected.load() == 0) made |= 1U << i;
    }
    for (const operation& one : what->messages) {
      const std::uint32_t peer = 1U << one.root;
      if ((c.shared->ranks[one.root].met.load() & (1U << c.rank)) == 0) made |= peer;
    }
    return made;
  }

  /// Tells others what it waits for, unless an earlier kernel may still do that. Nothing else can
  /// be called for the device until then, so it waits as one whose kernel waits.
  void tell() {
    const communicator& c = *of;
    if (!device_idle(c.device)) return;
    std::uint32_t peers = 0;
    for (const operation& one : what->messages) peers |= 1U << one.root;
    if (what->collectives.empty()) {
      c.mine().launching_messages.store(peers);
    } else {
      c.mine().launching_collective.store(1);
    }
    if (clock::now() - begin < 5ms) return;
    wait_for_ranks(c, missing());
    told = true;
  }

  void withdraw() {
    if (!of->failed()) {  // after a mismatch the others are to see it too
      of->mine().launching_collective.store(0);
      of->mine().launching_messages.store(0);
    }
    if (std::exchange(told, false)) wait_for_nobody(*of);
    internal::make_current(of->device);
    for (cudaStream_t stream : streams) internal::announce(stream, -1);
    dropped = true;
  }

  /// Several streams wait for each other before the kernel and for the kernel.
  bool go() {
    struct crossing {
      std::atomic<std::size_t> arrived{0};
      std::atomic<bool> done{false};
    };
    internal::make_current(of->device);
    for (cudaStream_t stream : streams) {
      if (internal::device_of(stream) != of->device) return false;
    }
    const auto meeting = std::make_shared<crossing>();
    what->number = of->kernels_launched.fetch_add(1) + 1;
    what->hang = of->hang_next.exchange(false);
    what->delay = of->delay_next.exchange(0);
    for (std::size_t i = 1; i < streams.size(); ++i) {
      internal::enqueue(streams[i], [meeting] {
        meeting->arrived.fetch_add(1);
        while (!meeting->done && !internal::must_end()) std::this_thread::sleep_for(50us);
      });
    }
    const bool gone =
        internal::enqueue(streams.front(), [meeting, what = what, others = streams.size() - 1] {
          while (meeting->arrived < others && !internal::must_end()) {
            std::this_thread::sleep_for(50us);
          }
          run(*what);
          meeting->done = true;
        });
    if (!gone) meeting->done = true;
    the().launched.push_back(of->name);
    return gone;
  }
};

std::shared_ptr<job> launching(const std::vector<posted>& all) {
  auto made = std::make_shared<job>();
  std::vector<launch> launches;
  for (const posted& one : all) {
    auto found = std::find_if(launches.begin(), launches.end(),
                              [&](const launch& each) { return each.of == one.of; });
    if (found == launches.end()) {
      launches.push_back({one.of, std::make_shared<kernel>(one.of), {}});
      made->of.push_back(one.of);
      found = std::prev(launches.end());
    }
    const bool message = one.what.what == verb::send || one.what.what == verb::receive;
    (message ? found->what->messages : found->what->collectives).push_back(one.what);
    if (std::find(found->streams.begin(), found->streams.end(), one.stream) ==
        found->streams.end()) {
      found->streams.push_back(one.stream);
    }
  }
  const int before = internal::current();
  for (launch& each : launches) {
    communicator& c = *each.of;
    if (!each.what->collectives.empty()) c.mine().connected.store(1);
    for (const operation& one : each.what->messages) c.mine().met.fetch_or(1U << one.root);
    ring(*c.shared);
    internal::make_current(c.device);
    for (cudaStream_t stream : each.streams) internal::announce(stream, 1);
  }
  internal::make_current(before);
  made->launches = true;
  made->step = [launches = std::move(launches)]() mutable -> std::optional<ncclResult_t> {
    for (launch& each : launches) {
      if (!each.dropped && each.of->aborted) each.withdraw();
      if (each.dropped || device_lost(*each.of) || each.missing() == 0) continue;
      each.tell();
      const finding found = stuck(*each.of);
      if (found.code == ncclSuccess) return std::nullopt;
      break_communicator(*each.of, found.code, found.text);
      each.of->mine().mismatched.store(1);
      ring(*each.of->shared);
      for (launch& one : launches) {
        if (!one.dropped) one.withdraw();
      }
      return found.code;
    }
    ncclResult_t result = ncclSuccess;
    for (launch& each : launches) {
      if (each.dropped) continue;
      each.withdraw();
      if (!each.go()) result = fail(ncclUnhandledCudaError, "a stream did not take the kernel");
    }
    launches.clear();
    return result;
  };
  return made;
}

// ---- groups
// --------------------------------------------------------------------------------------

void bury(const shared_communicator& one) {
  if (one->linked && one->mapping) one->mapping->unlink();
  one->gone = true;
  the().graveyard.push_back(one);
  the().communicators.erase(one.get());
}

std::shared_ptr<job> finalizing(const shared_communicator& of) {
  auto made = std::make_shared<job>();
  made->of = {of};
  made->step = [of]() -> std::optional<ncclResult_t> {
    if (of->aborted || of->failed()) return ncclSuccess;
    if (!idle(*of)) return std::nullopt;
    if (of->mine().finalized.exchange(1) == 0) ring(*of->shared);
    for (int i = 0; i < of->ranks; ++i) {
      if (of->shared->ranks[i].finalized.load() != 0) continue;
      if (of->shared->ranks[i].mismatched.load() == 0) return std::nullopt;
      break_communicator(*of, ncclRemoteError,
                         "rank " + std::to_string(i) + " of " + of->name + " found a mismatch");
      return ncclRemoteError;
    }
    return ncclSuccess;
  };
  return made;
}

/// Waits until nothing of these is left. All of them are ended together.
ncclResult_t end_all(lock& hold, const std::vector<shared_communicator>& all) {
  const auto settled = [&](const auto& of) {
    return of->aborted || of->state.load() != ncclInProgress;
  };
  std::vector<std::shared_ptr<job>> jobs;
  for (const auto& of : all) {
    block(hold, [&] { return of->gone || settled(of); });
    if (of->gone || of->aborted || of->finalized || of->failed() || !of->ready) continue;
    jobs.push_back(finalizing(of));
    begin(jobs.back());
  }
  block(hold, [&] {
    const auto open = [](const auto& one) { return !one->result; };
    if (std::any_of(jobs.begin(), jobs.end(), open)) return false;
    for (const auto& of : all) {
      if (of->gone) continue;
      if (!idle(*of)) return false;
      for (const auto& one : the().jobs) {  // it still looks at the communicator
        if (std::find(one->of.begin(), one->of.end(), of) != one->of.end()) return false;
      }
    }
    return true;
  });
  for (const auto& of : all) {
    if (!of->gone) bury(of);
  }
  return ncclSuccess;
}

ncclResult_t end_group(lock& hold) {
  if (--group.depth > 0) return ncclSuccess;
  const group_of_thread all = std::exchange(group, group_of_thread());
  if (all.error != ncclSuccess) return all.error;
  const int kinds = int(!all.operations.empty()) + int(!all.makings.empty());
  if (kinds > 1) {
    return fail(ncclInvalidUsage, "creation or finalization and collectives in one group");
  }
  bool blocking = false;
  bool other = false;
  for (const posted& one : all.operations) (one.of->blocking ? blocking : other) = true;
  for (const auto& one : all.makings) (one->of.front()->blocking ? blocking : other) = true;
  if (blocking && other) {
    return fail(ncclInvalidArgument, "blocking and non-blocking communicators in one group");
  }
  std::map<std::pair<communicator*, int>, int> unmatched;  // with itself
  for (const posted& one : all.operations) {
    if (one.what.root != one.of->rank) continue;
    if (one.what.what == verb::send) ++unmatched[{one.of.get(), 0}];
    if (one.what.what == verb::receive) --unmatched[{one.of.get(), 0}];
  }
  for (const auto& [of, sum] : unmatched) {
    if (sum != 0) return fail(ncclInvalidUsage, "a message to itself without its counterpart");
  }
  auto jobs = all.makings;
  if (!all.operations.empty()) jobs.push_back(launching(all.operations));
  for (const auto& one : jobs) begin(one);
  if (!all.endings.empty()) end_all(hold, all.endings);
  if (jobs.empty()) return ncclSuccess;
  if (!blocking) return ncclInProgress;
  ncclResult_t result = ncclSuccess;
  for (const auto& one : jobs) {
    block(hold, [&] { return one->result.has_value(); });
    if (result == ncclSuccess) result = *one->result;
  }
  return result;
}

/// A call by itself is a group of one.
template <class Call>
ncclResult_t grouped(lock& hold, Call call) {
  ++group.depth;
  const ncclResult_t code = call();
  if (code != ncclSuccess && group.error == ncclSuccess) group.error = code;
  const ncclResult_t ended = end_group(hold);
  return code != ncclSuccess ? code : ended;
}

// ---- making
// --------------------------------------------------------------------------------------

/// Removes what processes that died have left. Whoever uses a segment holds a lock on its file.
void sweep() {
  if (std::exchange(the().swept, true)) return;
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, prefix, std::strlen(prefix)) != 0) continue;
    const std::string name = std::string("/") + entry->d_name;
    const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) shm_unlink(name.c_str());
    close(file);
  }
  closedir(folder);
}

std::uint64_t host_hash() {
  std::string name = the().host;
  if (const char* id = std::getenv("NCCL_HOSTID"); name.empty() && id != nullptr) name = id;
  char real[256] = {};
  if (name.empty() && gethostname(real, sizeof real - 1) == 0) name = real;
  std::uint64_t hash = 1469598103934665603U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

/// Opens the shared memory and takes the place of the rank there.
ncclResult_t attach(communicator& of) {
  sweep();
  of.mapping =
      std::make_unique<shared_segment>(std::string("/") + prefix + of.key, sizeof(segment));
  of.shared = static_cast<segment*>(of.mapping->get());
  if (of.shared == nullptr) return fail(ncclSystemError, "no shared memory for " + of.name);
  rank_slot& mine = of.mine();
  std::uint32_t free = 0;
  if (!mine.attached.compare_exchange_strong(free, 1)) {
    return fail(ncclInvalidUsage, "rank " + std::to_string(of.rank) + " of " + of.name + " exists");
  }
  mine.pid = getpid();
  mine.device = of.device;
  mine.version = the().version;
  mine.ranks = of.ranks;
  mine.host = host_hash();
  mine.bus = internal::bus_id(of.device);
  mine.attached.store(2);
  ring(*of.shared);
  return ncclSuccess;
}

/// Null until all are there.
std::optional<ncclResult_t> joined(communicator& of) {
  for (int i = 0; i < of.ranks; ++i) {
    if (of.shared->ranks[i].attached.load() != 2) return std::nullopt;
  }
  if (std::exchange(of.linked, false)) of.mapping->unlink();
  bool elsewhere = false;
  const auto refuse = [&](const std::string& text) {
    break_communicator(of, ncclInvalidUsage, text);
    return ncclInvalidUsage;
  };
  for (int i = 0; i < of.ranks; ++i) {
    for (int k = 0; k < i; ++k) {
      const rank_slot& one = of.shared->ranks[i];
      const rank_slot& two = of.shared->ranks[k];
      const bool mine = i == of.rank || k == of.rank;
      const std::string both = "rank " + std::to_string(k) + " and rank " + std::to_string(i);
      if (one.ranks != two.ranks) {
        if (mine) return refuse(both + " disagree about the number of ranks");
        elsewhere = true;
      }
      if (one.version != two.version) {
        if (mine)
          return refuse("mismatched versions: " + both + " have " + std::to_string(two.version) +
                        " and " + std::to_string(one.version));
        elsewhere = true;
      }
      if (one.host == two.host && one.bus == two.bus) {
        if (mine) return refuse("duplicate GPU: " + both + " on device " + std::to_string(one.bus));
        elsewhere = true;
      }
    }
  }
  if (elsewhere) {
    break_communicator(of, ncclRemoteError, "another rank refused to join");
    return ncclRemoteError;
  }
  of.ready = true;
  return ncclSuccess;
}

ncclResult_t read_config(communicator& of, const ncclConfig_t* config) {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != 0xcafebeef) {
    return fail(ncclInvalidArgument, "ncclConfig_t was not initialised by NCCL_CONFIG_INITIALIZER");
  }
  if (config->blocking != NCCL_CONFIG_UNDEF_INT) {
    if (config->blocking != 0 && config->blocking != 1) {
      return fail(ncclInvalidArgument, "config.blocking is neither 0 nor 1");
    }
    of.blocking = config->blocking == 1;
  }
  if (config->size >= offsetof(ncclConfig_t, commName) + sizeof(char*) &&
      config->commName != nullptr) {
    of.name = config->commName;
  }
  return ncclSuccess;
}

ncclResult_t make(lock& hold, const char* function, ncclComm_t* comm, int ranks, ncclUniqueId id,
                  int rank, const ncclConfig_t* config) {
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter(function, hold)) return code;
    if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks ||
        std::memcmp(id.internal, "fakenccl", 8) != 0) {
      return fail(ncclInvalidArgument, std::string(function) + ": an invalid argument");
    }
    *comm = nullptr;
    if (ranks > most_ranks) return fail(ncclInvalidUsage, "the double has at most 16 ranks");
    const int device = internal::current();
    if (const auto code = internal::state(device)) {
      return fail(ncclUnhandledCudaError, std::string("no device: ") + cudaGetErrorName(code));
    }
    check_order(function, device);
    auto made = std::make_shared<communicator>();
    for (int i = 8; i < 24; ++i) {
      constexpr const char* digits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(id.internal[i]);
      made->key += {digits[byte >> 4], digits[byte & 15]};
    }
    made->name = "communicator " + made->key.substr(0, 8);
    made->rank = rank;
    made->ranks = ranks;
    made->device = device;
    made->generation = internal::generation(device);
    if (const auto code = read_config(*made, config)) return code;
    if (const auto code = attach(*made)) return code;
    the().communicators[made.get()] = made;
    *comm = reinterpret_cast<ncclComm_t>(made.get());
    auto making = std::make_shared<job>();
    making->of = {made};
    making->step = [made]() -> std::optional<ncclResult_t> {
      if (made->aborted) return ncclInternalError;
      if (!device_idle(made->device)) return std::nullopt;  // it allocates
      return joined(*made);
    };
    group.makings.push_back(making);
    return ncclSuccess;
  });
}

ncclResult_t ended_by(lock& hold, const char* function, ncclComm_t comm, bool abort) {
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter(function, hold)) return code;
    if (comm == nullptr) return ncclSuccess;
    const auto of = find(comm);
    if (!of) return ncclInvalidArgument;
    if (abort) {
      of->aborted = true;
      if (of->shared != nullptr) ring(*of->shared);
    }
    group.endings.push_back(of);
    return ncclSuccess;
  });
}

// ---- collectives
// ---------------------------------------------------------------------------------

bool overlap(const char* one, std::size_t bytes, const char* two, std::size_t more) {
  return one < two + more && two < one + bytes;
}

/// NCCL's rules for working in place. What breaks them gives wrong data.
void check_overlap(const communicator& of, const operation& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const auto ranks = static_cast<std::size_t>(of.ranks);
  const auto me = static_cast<std::size_t>(of.rank);
  const auto* from = static_cast<const char*>(what.from);
  const auto* to = static_cast<const char*>(what.to);
  if (from == nullptr || to == nullptr) return;
  const bool root = of.rank == what.root;
  std::size_t in = bytes;
  std::size_t out = bytes;
  bool in_place = from == to;
  switch (what.what) {
    case verb::send:
    case verb::receive:
      return;
    case verb::reduce:
      if (!root) return;
      break;
    case verb::all_gather:
      out *= ranks;
      in_place = from == to + me * bytes;
      break;
    case verb::reduce_scatter:
      in *= ranks;
      in_place = to == from + me * bytes;
      break;
    case verb::all_to_all:
      in *= ranks;
      out *= ranks;
      in_place = false;
      break;
    case verb::gather:
      if (!root) return;
      out *= ranks;
      in_place = from == to + me * bytes;
      break;
    case verb::scatter:
      if (!root) return;
      in *= ranks;
      in_place = to == from + me * bytes;
      break;
    default:
      break;
  }
  if (!in_place && overlap(from, in, to, out)) {
    internal::fault(std::string(name_of(what.what)) + " of " + of.name +
                    ": the buffers overlap in a way that NCCL does not allow");
  }
}

ncclResult_t enqueue(const char* function, operation what, ncclComm_t comm, cudaStream_t stream) {
  lock hold(the().mutex);
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter(function, hold)) return code;
    const auto of = find(comm);
    if (!of) return ncclInvalidArgument;
    check_order(function, of->device);
    if (const auto code = ensure_ready(*of)) return code;
    if (of->finalized) return fail(ncclInvalidUsage, of->name + " is finalized");
    if (internal::state(of->device) != cudaSuccess) {
      return fail(ncclUnhandledCudaError, "the device has an error");
    }
    if (what.root < 0 || what.root >= of->ranks || size_of(what.type) == 0) {
      return fail(ncclInvalidArgument, std::string(function) + ": root, peer or type is none");
    }
    const int factor = int(what.op) - int(ncclNumOps);
    if (what.op < 0 || factor >= int(of->factors.size()) ||
        (factor >= 0 && (!of->factors[static_cast<std::size_t>(factor)].used ||
                         of->factors[static_cast<std::size_t>(factor)].type != what.type))) {
      return fail(ncclInvalidArgument, std::string(function) + ": not an operation for this type");
    }
    if (factor >= 0) what.factor = of->factors[static_cast<std::size_t>(factor)];
    const bool message = what.what == verb::send || what.what == verb::receive;
    if (!message && what.count == 0) return ncclSuccess;
    check_overlap(*of, what);
    if (of->ranks == 1 && !message) {
      if (what.from == what.to && !what.factor.used) return ncclSuccess;
      const int before = internal::current();
      internal::make_current(of->device);
      const bool taken = internal::device_of(stream) == of->device &&
                         internal::enqueue(stream, [what] { run_alone(what); });
      internal::make_current(before);
      return taken ? ncclSuccess : fail(ncclUnhandledCudaError, "a stream did not take the copy");
    }
    group.operations.push_back({of, what, stream});
    return ncclSuccess;
  });
}

ncclResult_t collective(const char* function, verb what, const void* from, void* to,
                        std::size_t count, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream, int root = 0, ncclRedOp_t op = ncclSum) {
  operation made;
  made.what = what;
  made.from = from;
  made.to = to;
  made.count = count;
  made.type = type;
  made.op = op;
  made.root = root;
  return enqueue(function, made, comm, stream);
}

template <class Get>
ncclResult_t ask(const char* function, ncclComm_t comm, int* result, Get get) {
  lock hold(the().mutex);
  if (const auto code = enter(function, hold)) return code;
  const auto of = find(comm);
  if (!of || result == nullptr) return ncclInvalidArgument;
  if (const auto code = ensure_ready(*of)) return code;
  *result = get(*of);
  return ncclSuccess;
}

shared_communicator found(ncclComm_t comm) {
  const lock hold(the().mutex);
  return find(comm);
}

}  // namespace

void break_communicator(communicator& of, ncclResult_t code, const std::string& text) {
  {
    const std::lock_guard hold(texts().mutex);
    texts().of[&of] = text;
    texts().last = text;
  }
  int now = of.state.load();
  while ((now == ncclSuccess || now == ncclInProgress) &&
         !of.state.compare_exchange_weak(now, code)) {
  }
}

// ---- control
// -------------------------------------------------------------------------------------

void fail_next(const char* function, ncclResult_t code, int times) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().failures[function] = {code, times};
}

std::uint64_t calls(const char* function) {
  const lock hold(the().mutex);
  return the().calls[function];
}

std::vector<std::string> faults() { return internal::faults(); }
void clear_faults() { internal::clear_faults(); }

std::vector<std::string> cycles() { return cycles_found(); }

void seed(std::uint64_t value) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().random.seed(value);
}

void launch_delay(unsigned least_microseconds, unsigned most_microseconds) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().least_delay = least_microseconds;
  the().most_delay = most_microseconds;
}

void hold_launches(bool yes) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().held = yes;
  the().changed.notify_all();
}

std::vector<std::string> launches() {
  const lock hold(the().mutex);
  return the().launched;
}

void set_async_error(ncclComm_t comm, ncclResult_t code) {
  if (const auto of = found(comm)) {
    break_communicator(*of, code, "the test wants an asynchronous error");
  }
}

void hang_next(ncclComm_t comm) {
  if (const auto of = found(comm)) of->hang_next = true;
}

void delay_next(ncclComm_t comm, unsigned microseconds) {
  if (const auto of = found(comm)) of->delay_next = microseconds;
}

void set_version(int code) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().version = code;
}

void set_host(std::string name) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().host = std::move(name);
}

int blocked_calls() {
  const lock hold(the().mutex);
  return the().blocked;
}

std::uint64_t pending_kernels(ncclComm_t comm) {
  const auto of = found(comm);
  return of ? of->kernels_launched.load() - of->kernels_ended.load() : 0;
}

std::size_t live_communicators() {
  const lock hold(the().mutex);
  return the().communicators.size();
}

}  // namespace fake_nccl

// ---- the part of NCCL
// ----------------------------------------------------------------------------

using namespace fake_nccl;  // NOLINT: this file is the double

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGetVersion", hold)) return code;
  if (version == nullptr) return ncclInvalidArgument;
  *version = the().version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGetUniqueId", hold)) return code;
  if (id == nullptr) return ncclInvalidArgument;
  if (getrandom(id->internal, sizeof id->internal, 0) != ssize_t(sizeof id->internal)) {
    return fail(ncclSystemError, "no random numbers");
  }
  std::memcpy(id->internal, "fakenccl", 8);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  lock hold(the().mutex);
  return make(hold, "ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  lock hold(the().mutex);
  return make(hold, "ncclCommInitRank", comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* device_list) {
  ncclUniqueId id;
  if (const auto code = ncclGetUniqueId(&id)) return code;
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommInitAll", hold)) return code;
  const int before = internal::current();
  ++group.depth;
  for (int i = 0; i < devices; ++i) {
    internal::make_current(device_list == nullptr ? i : device_list[i]);
    make(hold, "ncclCommInitRank", &comms[i], devices, id, i, nullptr);
  }
  internal::make_current(before);
  return end_group(hold);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  lock hold(the().mutex);
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter("ncclCommSplit", hold)) return code;
    const auto parent = find(comm);
    if (!parent || made == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
      return fail(ncclInvalidArgument, "ncclCommSplit: an invalid argument");
    }
    *made = nullptr;
    check_order("ncclCommSplit", parent->device);
    if (const auto code = ensure_ready(*parent)) return code;
    if (parent->finalized) return fail(ncclInvalidUsage, parent->name + " is finalized");
    auto making = std::make_shared<job>();
    making->of = {parent};
    shared_communicator child;
    if (color != NCCL_SPLIT_NOCOLOR) {
      child = std::make_shared<communicator>();
      child->name = parent->name + "/" + std::to_string(color);
      child->device = parent->device;
      child->generation = parent->generation;
      child->blocking = parent->blocking;
      child->linked = false;
      if (const auto code = read_config(*child, config)) return code;
      making->of.push_back(child);
      the().communicators[child.get()] = child;
      *made = reinterpret_cast<ncclComm_t>(child.get());
    }
    const std::uint64_t which = parent->splits++;
    rank_slot& mine = parent->mine();
    mine.split[which % 4].color = color;
    mine.split[which % 4].key = key;
    mine.splits.store(which + 1);
    ring(*parent->shared);
    making->step = [parent, child, which, color]() -> std::optional<ncclResult_t> {
      if (parent->aborted || (child && child->aborted)) return ncclInternalError;
      if (child && child->shared != nullptr) return joined(*child);
      if (!device_idle(parent->device)) return std::nullopt;  // it allocates
      std::vector<std::pair<int, int>> members;               // key, rank in the parent
      for (int i = 0; i < parent->ranks; ++i) {
        const rank_slot& slot = parent->shared->ranks[i];
        if (slot.splits.load() <= which) return std::nullopt;
        const auto& asked = slot.split[which % 4];
        if (asked.color == color) members.emplace_back(asked.key, i);
      }
      if (!child) return ncclSuccess;
      std::sort(members.begin(), members.end());
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i].second == parent->rank) child->rank = static_cast<int>(i);
      }
      child->ranks = static_cast<int>(members.size());
      child->key = parent->key + "." + std::to_string(which) + "." + std::to_string(color);
      child->linked = true;
      if (const auto code = attach(*child)) return code;
      return std::nullopt;
    };
    group.makings.push_back(making);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  lock hold(the().mutex);
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter("ncclCommFinalize", hold)) return code;
    const auto of = find(comm);
    if (!of) return ncclInvalidArgument;
    check_order("ncclCommFinalize", of->device);
    if (const auto code = ensure_ready(*of)) return code;
    if (of->finalized) return fail(ncclInvalidArgument, of->name + " is finalized already");
    of->finalized = true;
    group.makings.push_back(finalizing(of));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  lock hold(the().mutex);
  return ended_by(hold, "ncclCommDestroy", comm, false);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  lock hold(the().mutex);
  return ended_by(hold, "ncclCommAbort", comm, true);
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  const std::lock_guard hold(texts().mutex);
  const auto found = texts().of.find(reinterpret_cast<const communicator*>(comm));
  text = found == texts().of.end() ? texts().last : found->second;
  return text.c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommGetAsyncError", hold)) return code;
  const auto of = find(comm);
  if (!of || error == nullptr) return ncclInvalidArgument;
  *error = static_cast<ncclResult_t>(of->state.load());
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return ask("ncclCommCount", comm, count, [](const communicator& of) { return of.ranks; });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return ask("ncclCommCuDevice", comm, device, [](const communicator& of) { return of.device; });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return ask("ncclCommUserRank", comm, rank, [](const communicator& of) { return of.rank; });
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  {
    lock hold(the().mutex);
    if (const auto code = enter("ncclMemAlloc", hold)) return code;
  }
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  {
    lock hold(the().mutex);
    if (const auto code = enter("ncclMemFree", hold)) return code;
  }
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommRegister", hold)) return code;
  const auto of = find(comm);
  if (!of || memory == nullptr || bytes == 0 || handle == nullptr) return ncclInvalidArgument;
  check_order("ncclCommRegister", of->device);
  if (const auto code = ensure_ready(*of)) return code;
  *handle = reinterpret_cast<void*>(++the().handles);
  the().registered[*handle] = bytes;
  ++of->registrations;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommDeregister", hold)) return code;
  const auto of = find(comm);
  if (!of || the().registered.erase(handle) == 0) return ncclInvalidArgument;
  --of->registrations;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclRedOpCreatePreMulSum", hold)) return code;
  const auto of = find(comm);
  if (!of || op == nullptr || scalar == nullptr || size_of(type) == 0) return ncclInvalidArgument;
  if (const auto code = ensure_ready(*of)) return code;
  premultiplied made;
  made.used = true;
  made.type = type;
  if (residence == ncclScalarDevice) {
    made.on_device = scalar;
  } else {
    std::memcpy(made.scalar.data(), scalar, size_of(type));
  }
  auto& all = of->factors;
  auto place = std::find_if(all.begin(), all.end(), [](const auto& one) { return !one.used; });
  if (place == all.end()) place = all.insert(place, premultiplied());
  *place = made;
  *op = static_cast<ncclRedOp_t>(ncclNumOps + int(place - all.begin()));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclRedOpDestroy", hold)) return code;
  const auto of = find(comm);
  const int which = int(op) - int(ncclNumOps);
  if (!of || which < 0 || which >= int(of->factors.size()) ||
      !of->factors[static_cast<std::size_t>(which)].used) {
    return fail(ncclInvalidArgument, "ncclRedOpDestroy: not an operation of this communicator");
  }
  of->factors[static_cast<std::size_t>(which)].used = false;
  return ncclSuccess;
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduce", verb::reduce, from, to, count, type, comm, stream, root, op);
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return collective("ncclBcast", verb::broadcast, buffer, buffer, count, type, comm, stream, root);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclBroadcast", verb::broadcast, from, to, count, type, comm, stream, root);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllReduce", verb::all_reduce, from, to, count, type, comm, stream, 0, op);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count_each, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduceScatter", verb::reduce_scatter, from, to, count_each, type, comm,
                    stream, 0, op);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count_each, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllGather", verb::all_gather, from, to, count_each, type, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAlltoAll", verb::all_to_all, from, to, count, type, comm, stream);
}

ncclResult_t ncclGather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclGather", verb::gather, from, to, count, type, comm, stream, root);
}

ncclResult_t ncclScatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclScatter", verb::scatter, from, to, count, type, comm, stream, root);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclSend", verb::send, from, nullptr, count, type, comm, stream, peer);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return collective("ncclRecv", verb::receive, nullptr, to, count, type, comm, stream, peer);
}

ncclResult_t ncclGroupStart() {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGroupStart", hold)) return code;
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGroupEnd", hold)) {
    group = group_of_thread();
    return code;
  }
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return end_group(hold);
}

}  // extern "C"
