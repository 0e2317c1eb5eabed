// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The state of NCCL's double, its groups, and the thread that launches; nccl_control.hpp says what
// it is and what it is not.
#include "support/fake_gpu/nccl_control.hpp"
#include "support/fake_gpu/nccl_library.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake_nccl {

using namespace std::chrono_literals;

namespace {

constexpr const char* prefix = "cohort_fake_nccl.";

}  // namespace

library& the() {
  static library& instance = *new library;
  return instance;
}

error_texts& texts() {
  static error_texts& instance = *new error_texts;
  return instance;
}

ncclResult_t fail(ncclResult_t code, const std::string& text) {
  const std::lock_guard hold(texts().mutex);
  texts().last = text;
  return code;
}

thread_local group_of_thread group;

// ---- the thread that launches -----------------------------------------------------------------

namespace {

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
      const bool stays = one->stalled || (one->launches && lib.held);
      if (stays && std::none_of(one->of.begin(), one->of.end(), aborted)) continue;
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
  lib.stalling.clear();
  lib.registered.clear();
  lib.in_registered_memory = 0;
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

}  // namespace

/// What every call begins with: it is counted, and may be made to fail.
ncclResult_t enter(const char* function, lock&) {
  library& lib = the();
  internal::at_restart(&restarted);
  ++lib.calls[function];
  if (lib.stalling.erase(function) != 0) group.stalled = true;
  const auto found = lib.failures.find(function);
  if (found != lib.failures.end() && found->second.second > 0) {
    --found->second.second;
    return fail(found->second.first, std::string(function) + " fails as the test wants");
  }
  return ncclSuccess;
}

namespace {

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

}  // namespace

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

/// Nothing may be called for a device while something of it is in progress. What finalizes launches
/// nothing, so that no order is at stake.
void check_order(const char* function, int device) {
  for (const auto& [handle, one] : the().communicators) {
    if (one->device != device || one->state.load() != ncclInProgress || one->finalized) continue;
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

namespace {

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

// ---- launching --------------------------------------------------------------------------------

/// What a call leaves in its streams, or in the graph that is captured there: it makes the kernel
/// of each launch. Its parts are asked for with the double of CUDA's runtime locked.
class kernel_maker {
 public:
  kernel_maker(std::shared_ptr<const kernel> what, std::size_t streams, bool captured)
      : what_(std::move(what)), streams_(streams), captured_(captured) {
    if (captured_) what_->of->captured.fetch_add(1);
  }
  ~kernel_maker() {
    if (captured_) what_->of->captured.fetch_sub(1);
  }
  kernel_maker(const kernel_maker&) = delete;
  kernel_maker& operator=(const kernel_maker&) = delete;

  /// Several streams wait for each other before the kernel and for the kernel.
  struct instance {
    instance(const shared_communicator& of, std::size_t all_others)
        : what(of), others(all_others) {}
    kernel what;
    std::size_t others;
    std::size_t parts = 0;
    std::atomic<std::size_t> arrived{0};
    std::atomic<bool> done{false};

    void run_in_first() {
      while (arrived < others && !internal::must_end()) std::this_thread::sleep_for(50us);
      run(what);
      done = true;
    }
    void run_in_other() {
      arrived.fetch_add(1);
      while (!done && !internal::must_end()) std::this_thread::sleep_for(50us);
    }
  };

  /// For one of the streams, each of which asks once for each launch.
  std::shared_ptr<instance> part(std::uint64_t launch) {
    auto& found = instances_[launch];
    if (found == nullptr) {
      found = std::make_shared<instance>(what_->of, streams_ - 1);
      communicator& of = *what_->of;
      found->what.collectives = what_->collectives;
      found->what.messages = what_->messages;
      found->what.number = of.kernels_launched.fetch_add(1) + 1;
      found->what.hang = of.hang_next.exchange(false);
      found->what.delay = of.delay_next.exchange(0);
    }
    auto made = found;
    if (++made->parts == streams_) instances_.erase(launch);
    return made;
  }

 private:
  std::shared_ptr<const kernel> what_;
  std::size_t streams_;
  bool captured_;
  std::map<std::uint64_t, std::shared_ptr<instance>> instances_;  // not yet in all streams
};

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

  bool go() {
    internal::make_current(of->device);
    const void* const capture = internal::capture_of(streams.front());
    for (cudaStream_t stream : streams) {
      if (internal::device_of(stream) != of->device) return false;
      if (internal::capture_of(stream) != capture) return false;  // one has ended since the call
    }
    const auto maker = std::make_shared<kernel_maker>(what, streams.size(), capture != nullptr);
    const bool gone = internal::enqueue(streams.front(), [maker](std::uint64_t number) {
      return [part = maker->part(number)] { part->run_in_first(); };
    });
    for (std::size_t i = 1; gone && i < streams.size(); ++i) {
      internal::enqueue(streams[i], [maker](std::uint64_t number) {
        return [part = maker->part(number)] { part->run_in_other(); };
      });
    }
    if (gone) the().launched.push_back(of->name);
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

// ---- groups -----------------------------------------------------------------------------------

void bury(const shared_communicator& one) {
  if (one->linked && one->mapping) one->mapping->unlink();
  one->gone = true;
  the().graveyard.push_back(one);
  the().communicators.erase(one.get());
}

}  // namespace

std::shared_ptr<job> finalizing(const shared_communicator& of) {
  auto made = std::make_shared<job>();
  made->of = {of};
  made->step = [of]() -> std::optional<ncclResult_t> {
    if (of->aborted || of->failed()) return ncclSuccess;
    if (!idle(*of) || of->captured.load() != 0) return std::nullopt;
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

namespace {

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
      if (of->captured.load() != 0 && !device_lost(*of)) return false;  // after an abort too
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

}  // namespace

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
  for (const auto& one : jobs) {
    one->stalled = all.stalled;
    begin(one);
  }
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

// ---- making -----------------------------------------------------------------------------------

namespace {

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
    struct stat status = {};
    // Another sweep may have removed it, and somebody made it anew, between opening and locking.
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &status) == 0 && status.st_nlink > 0) {
      shm_unlink(name.c_str());
    }
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

}  // namespace

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

// ---- control ----------------------------------------------------------------------------------

namespace {

shared_communicator found(ncclComm_t comm) {
  const lock hold(the().mutex);
  return find(comm);
}

}  // namespace

void fail_next(const char* function, ncclResult_t code, int times) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().failures[function] = {code, times};
}

void stall_next(const char* function) {
  const lock hold(the().mutex);
  internal::at_restart(&restarted);
  the().stalling.insert(function);
}

std::uint64_t calls(const char* function) {
  const lock hold(the().mutex);
  return the().calls[function];
}

std::uint64_t calls_in_registered_memory() {
  const lock hold(the().mutex);
  return the().in_registered_memory;
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

std::vector<ncclComm_t> communicators_of(int ranks) {
  const lock hold(the().mutex);
  std::vector<ncclComm_t> all;
  for (const auto& [handle, one] : the().communicators) {
    if (one->ranks == ranks && !one->gone) {
      all.push_back(reinterpret_cast<ncclComm_t>(one.get()));
    }
  }
  return all;
}

}  // namespace fake_nccl
