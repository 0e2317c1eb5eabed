// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/communicator.hpp`.

#include <cohort/comm/joint.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/life/agreement.hpp>
#include <cohort/nccl/queue/calls.ipp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace cohort::nccl::detail {

struct identity {
  std::int32_t code;
  std::uint64_t token;
  ncclUniqueId id;
};

/// Differs from those of other processes and times for all practical purposes.
inline std::uint64_t fresh_token() {
  static std::atomic<std::uint64_t> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::uint64_t seed = static_cast<std::uint64_t>(now) ^
                             (static_cast<std::uint64_t>(::getpid()) << 40U) ^ count.fetch_add(1);
  return seed * 0x9e3779b97f4a7c15U + 1;
}

/// From here on MPI is given no pointers into the device's memory.
inline void count_launcher(communicator_state& comm) noexcept {
  if (comm.device < 0 || comm.device >= device::detail::most_devices) return;
  device::state_of(comm.device).add_launcher();
  comm.launches = true;
}

/// Marks a communicator that was not finished as gone, however its coroutine ends.
class unfinished {
 public:
  explicit unfinished(std::shared_ptr<communicator_state> comm) noexcept : comm_(std::move(comm)) {}
  unfinished(const unfinished&) = delete;
  ~unfinished() {
    if (comm_) comm_->source.ladder().bring_down(*comm_, errc::closed, "it was not made", false);
  }
  void done() noexcept { comm_.reset(); }

 private:
  std::shared_ptr<communicator_state> comm_;
};

/// How many devices each rank of MPI brings; the same on all ranks. Throws if one of them has none.
inline progress::look_task<> count_devices(cohort::communicator over, std::size_t mine,
                                           std::vector<int>& counts) {
  const int here = static_cast<int>(std::min(mine, std::size_t{device::detail::most_devices} + 1));
  auto counted = comm::joint::all_gather(over, here, counts);
  co_await counted;
  std::vector<int> bad;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] >= 1 && counts[rank] <= device::detail::most_devices) continue;
    bad.push_back(static_cast<int>(rank));
  }
  if (bad.empty()) co_return;
  throw rank_error(errc::invalid_argument, bad,
                   "no NCCL communicator can be made: rank " + std::to_string(bad.front()) +
                       " gives no device, or too many");
}

// 1. Over MPI: what each rank has, and what follows, which is the same everywhere.
// 2. Rank 0 makes the id, MPI carries it.
// 3. When the places in the devices' queues have come, NCCL's init, for all devices of the process
//    in one group; its state is polled.
// 4. Over MPI: how it went, so that all ranks end alike. A rank where it fails tells the others
//    through the fault channel, whose init would wait for it.
//
// It cannot be cancelled: the peers count on this rank in each of these stages. If the engine ends
// meanwhile, it goes on until all ranks have heard of that.
COHORT_INLINE progress::look_task<std::vector<communicator>> make_all(cohort::communicator world,
                                                                      making what) {
  issue_source& source = source_of(world);
  const tools::range watched(tools::category::communicator, tools::literal("make_communicator"));
  const std::size_t processes = static_cast<std::size_t>(world.size());
  const std::size_t process = static_cast<std::size_t>(world.rank());
  // Before the first stage, for in it and after it the others count on this rank.
  std::vector<int> counts(processes, 1);
  std::vector<int> firsts(processes, 0);
  std::vector<std::shared_ptr<communicator_state>> comms;
  comms.reserve(what.devices.size());
  std::vector<facts> mine(what.devices.size());
  std::vector<facts> all(processes);
  std::vector<init_result> each(processes);
  std::vector<communicator> handles;
  handles.reserve(what.devices.size());
  auto duplicated = comm::joint::duplicate(std::move(world));
  cohort::communicator over = co_await duplicated;
  if (what.several) {
    auto counted = count_devices(over, what.devices.size(), counts);
    co_await counted;
  }
  for (std::size_t i = 1; i < processes; ++i) firsts[i] = firsts[i - 1] + counts[i - 1];
  const int ranks = firsts.back() + counts.back();

  for (std::size_t i = 0; i < what.devices.size(); ++i) try {
      auto& comm =
          comms.emplace_back(std::make_shared<communicator_state>(source, over, what.options));
      comm->rank = firsts[process] + static_cast<int>(i);
      comm->size = ranks;
      comm->device = what.devices[i];
      count_launcher(*comm);
      comm->borrowed = what.theirs != nullptr;
      comm->orderer = what.orderer;
      comm->native_exchange = has_native_exchange();
      if (what.several) comm->firsts = firsts;
      mine[i] = look_around(*comm);
    } catch (const std::bad_alloc&) {
      mine[i] = without_memory();
    }
  if (what.theirs != nullptr && mine.front().error == 0) {
    int count = 0;
    int rank = -1;
    static_cast<void>(ncclCommCount(what.theirs, &count));
    static_cast<void>(ncclCommUserRank(what.theirs, &rank));
    if (count != ranks || rank != firsts[process]) {
      mine.front().error = static_cast<std::int32_t>(errc::invalid_communicator);
      put(mine.front().text, "the NCCL communicator has rank " + std::to_string(rank) + " of " +
                                 std::to_string(count));
    }
  }
  if (what.bad.code && mine.front().error == 0) {
    const bool known = what.bad.code.category() == cohort_category();
    mine.front().error = known ? what.bad.code.value() : static_cast<std::int32_t>(errc::aborted);
    put(mine.front().text, what.bad.text);
  }
  all.resize(static_cast<std::size_t>(ranks));
  auto told = comm::joint::all_gather_v(over, mine, all, counts);
  co_await told;
  judge(all, what.theirs != nullptr);
  const auto& lead = comms.front();

  identity made{};
  if (process == 0 && what.theirs == nullptr) made.code = ncclGetUniqueId(&made.id);
  made.token = fresh_token();
  auto carried = comm::joint::broadcast(over, made, 0);
  co_await carried;
  check(static_cast<ncclResult_t>(made.code), "ncclGetUniqueId");

  const auto channel = std::make_shared<fault_channel>(source, over);
  for (const auto& comm : comms) {
    comm->token = made.token;
    comm->channel = channel;
    channel->add(comm);
    source.add(comm);
  }
  unfinished guard(lead);
  if (!source.is_ending()) source.messages().listen(lead);
  const auto is_down = [&] {
    return std::any_of(comms.begin(), comms.end(),
                       [](const auto& comm) { return comm->stands != phase::making; });
  };
  const auto have_come = [&] {
    return std::all_of(what.places.begin(), what.places.end(),
                       [](const turn& place) { return place.has_come(); });
  };
  look_condition come(source, [&] { return have_come() || is_down(); }, true);
  co_await come;
  std::error_code why;
  // A thread of NCCL writes it once more when init ends. If nobody has seen that end, it is kept.
  std::vector<std::unique_ptr<ncclComm_t>> natives;
  try {
    for (const auto& comm : comms) {
      natives.push_back(std::make_unique<ncclComm_t>(nullptr));
      comm->domain.emplace(source.domain_of(comm->device));
      comm->scratch = source.queue_of(comm->device).scratch();
    }
    source.exclusively([&] {
      if (is_down()) return;
      if (what.theirs != nullptr) {
        lead->native = what.theirs;
        return;
      }
      if (what.several) check(ncclGroupStart(), "ncclGroupStart");
      ncclResult_t code = ncclSuccess;
      for (std::size_t i = 0; i < comms.size() && !failed(code); ++i) {
        const device::scoped_device here(comms[i]->device);
        ncclConfig_t config = comms[i]->options.config;
        config.blocking = 0;
        code = ncclCommInitRankConfig(natives[i].get(), ranks, made.id, comms[i]->rank, &config);
      }
      const ncclResult_t posted = what.several ? ncclGroupEnd() : ncclSuccess;
      for (std::size_t i = 0; i < comms.size(); ++i) comms[i]->native = *natives[i];
      check(code, "ncclCommInitRankConfig");
      check(posted, "ncclGroupEnd");
    });
  } catch (const std::system_error& failed) {
    why = failed.code();
  } catch (const std::bad_alloc&) {
    why = std::make_error_code(std::errc::not_enough_memory);
  }
  const auto bound = std::chrono::steady_clock::now() + what.options.init_bound;
  bool late = false;
  look_condition settled(
      source,
      [&] {
        if (why || is_down()) return true;
        bool is_over = true;
        for (const auto& comm : comms) {
          const ncclResult_t state = state_of(comm->native);
          if (failed(state)) why = make_error(state);
          is_over = is_over && state != ncclInProgress;
        }
        late = !is_over && std::chrono::steady_clock::now() >= bound;
        return is_over || why || late;
      },
      true);
  co_await settled;
  if (why || late || is_down()) {
    for (auto& native : natives) left_to_nccl().add(std::move(native));
  }
  if (late && !why) why = errc::deadline_exceeded;
  if (why) source.ladder().bring_down(*lead, why, "NCCL's init failed");
  for (const auto& comm : comms) {
    if (!why && comm->stands != phase::making) why = comm->why ? comm->why : errc::aborted;
  }
  for (turn& place : what.places) place.release();
  if (!why && source.is_ending()) why = errc::engine_stopped;

  init_result mine_now{};
  mine_now.failed = why ? 1 : 0;
  mine_now.code = why.category() == nccl_category() ? why.value() : 0;
  put(mine_now.text, why ? why.message() : std::string());
  auto ended = comm::joint::all_gather(over, mine_now, each);
  co_await ended;
  std::string text;
  std::int32_t code = 0;
  for (std::size_t rank = 0; rank < each.size(); ++rank) {
    if (each[rank].failed == 0) continue;
    text += (text.empty() ? "NCCL's init failed on rank " : "; on rank ") + std::to_string(rank) +
            ": " + get(each[rank].text);
    // The rank where it failed knows more than those that have only heard of it.
    if (code == 0 || code == ncclRemoteError) code = each[rank].code;
  }
  if (!text.empty()) {
    const std::error_code common =
        code != 0 ? make_error(static_cast<ncclResult_t>(code)) : make_error_code(errc::aborted);
    throw std::system_error(common, text);
  }
  source.exclusively([&] {
    for (const auto& comm : comms) {
      if (comm->stands == phase::making) comm->stands = phase::ready;
    }
  });
  guard.done();
  for (auto& comm : comms) handles.emplace_back(std::move(comm));
  // Nobody takes them any more, and the others do not know that.
  if (source.is_ending()) {
    for (const communicator& handle : handles) source.leaving().leave(*handle.state());
  }
  co_return handles;
}

COHORT_INLINE making one_device(communicator_options options, int device, turn place,
                                ncclComm_t theirs, problem bad, const void* orderer) {
  making what;
  what.options = options;
  what.devices.push_back(device);
  what.places.push_back(std::move(place));
  what.theirs = theirs;
  what.bad = std::move(bad);
  what.orderer = orderer;
  return what;
}

COHORT_INLINE int device_for(int wanted) {
  if (wanted >= 0) return wanted;
  try {
    return device::default_device();
  } catch (const std::system_error&) {
    return -1;
  }
}

COHORT_INLINE turn place_for(const cohort::communicator& world, int device) {
  if (device < 0 || device >= device::detail::most_devices) return {};
  return source_of(world).reserve(device);
}

// Whatever has become of the parent here, the other ranks may be in the split already, or in
// the exchange of facts after it. So this one takes part in both, and says there what is wrong.
COHORT_INLINE progress::look_task<std::vector<communicator>> split(communicator parent, int color,
                                                                   int key, turn place) {
  const auto state = parent.state();
  if (!state->firsts.empty()) {
    throw cohort::error(errc::not_supported,
                        "nccl split: the communicator has several devices for a process");
  }
  const tools::range watched(tools::category::communicator, tools::literal("split"));
  look_condition drained(
      state->source,
      [&] {
        return (place.has_come() && state->outstanding == 0) || state->stands != phase::ready;
      },
      true);
  co_await drained;
  std::error_code bad;
  if (state->stands != phase::ready) bad = state->why ? state->why : make_error_code(errc::closed);
  auto divided = comm::joint::split(state->mpi, color, key);
  cohort::communicator part = co_await divided;
  if (!part) {
    if (bad) throw std::system_error(bad, "split");
    co_return std::vector<communicator>();
  }
  problem parents{bad, "the communicator to be split has ended: " + bad.message()};
  auto made = make_all(part, one_device(state->options, state->device, std::move(place), nullptr,
                                        std::move(parents)));
  auto all = co_await made;
  co_return all;
}

/// Until it has ended.
inline progress::look_task<> is_over(std::shared_ptr<communicator_state> state, const char* verb) {
  look_condition over(state->source, [&] {
    return state->stands == phase::gone || state->stands == phase::leaked;
  });
  co_await over;
  if (state->stands == phase::leaked) throw std::system_error(errc::stalled, verb);
}

COHORT_INLINE progress::look_task<> finalize(std::shared_ptr<communicator_state> state) {
  state->source.leaving().leave(*state);
  auto ended = is_over(state, "finalize");
  co_await ended;
  if (state->why && state->why != errc::closed) throw std::system_error(state->why, "finalize");
}

COHORT_INLINE progress::look_task<> abort(std::shared_ptr<communicator_state> state) {
  state->source.ladder().bring_down(*state, errc::aborted, "aborted by the program");
  auto ended = is_over(state, "abort");
  co_await ended;
}

}  // namespace cohort::nccl::detail
