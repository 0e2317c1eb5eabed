// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a plane is, and what the engine polls of all in a context; part of the bodies of
/// shm/backend.hpp.

#include <cohort/core/log.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/mpi/environment.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/shm/backend.hpp>
#include <cohort/shm/between/messages.hpp>
#include <cohort/shm/between/nodes.hpp>
#include <cohort/shm/plane/late_thread.hpp>
#include <cohort/shm/plane/sequence.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::shm::detail {

/// What the engine polls: all planes of its context.
class source final : public progress::polled_source, public asio::execution_context::service {
 public:
  using key_type = source;
  static inline asio::execution_context::id id;

  template <std::derived_from<asio::execution_context> Context>
  explicit source(Context& context)
      : asio::execution_context::service(context),
        engine_(asio::use_service<progress::engine>(context)),
        planes_(std::make_shared<plane_list>()) {
    engine_.attach(*this);
  }
  ~source() override { engine_.detach(this); }
  void shutdown() noexcept override { planes_->late.stop(); }

  [[nodiscard]] progress::engine& engine() const noexcept { return engine_; }
  [[nodiscard]] const std::shared_ptr<plane_list>& planes() const noexcept { return planes_; }

  COHORT_INLINE std::size_t test(progress::ready_queue&) override;
  [[nodiscard]] std::size_t pending() const noexcept override {
    return planes_->pending.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t bytes() const noexcept override {
    return planes_->bytes.load(std::memory_order_relaxed);
  }
  COHORT_INLINE void end() override;
  COHORT_INLINE void abandon() override;

 private:
  COHORT_INLINE void list(progress::pending_lines& lines) override;
  std::size_t tell();

  progress::engine& engine_;
  std::shared_ptr<plane_list> planes_;
};

/// Where a plane is: over one node, or over several and then with messages between them.
struct plane_place {
  std::shared_ptr<const node_map> map;
  MPI_Comm messages = MPI_COMM_NULL;  ///< on which nothing else has tags from `first_tag` on
  int first_tag = 0;
  mpi::comm own;  ///< that one, if it is the plane's
};

/// A mapped segment and its sequences. Everything but the constructor is called with the list
/// locked.
class plane {
 public:
  plane(source& by, segment memory, plane_place place, const backend_options& options,
        bool is_chosen)
      : planes_(by.planes()),
        engine_(by.engine()),
        place_(std::move(place)),
        talks_(place_.map->nodes() != 1),
        memory_(std::move(memory)) {
    const node_map& map = *place_.map;
    const std::size_t ranks = map.size_here();
    const std::size_t each = sequence::bytes(ranks, options.chunk);
    sequences_.reserve(options.orders);
    for (std::uint32_t i = 0; i < options.orders; ++i) {
      std::unique_ptr<node_messages> between;
      if (talks()) {
        between = std::make_unique<node_messages>(
            place_.map, place_.messages,
            place_.first_tag + static_cast<int>(i) * node_messages::tags(depth), depth,
            options.chunk / map.rails() + 2 * packs::line);
      }
      sequences_.emplace_back(memory_.bytes().subspan(i * each, each), map.place(), ranks,
                              options.chunk, options.whole_up_to, is_chosen, std::move(between));
    }
    const std::lock_guard hold(planes_->mutex);
    planes_->all.push_back(this);
    if (talks()) ++planes_->talking;
  }
  plane(const plane&) = delete;
  plane& operator=(const plane&) = delete;
  ~plane() {
    std::vector<ended_call> ended;
    {
      const std::lock_guard hold(planes_->mutex);
      std::erase(planes_->all, this);
      if (talks()) --planes_->talking;
      fail(make_error_code(errc::closed), ended);
    }
    if (talks()) leave_messages(ended);
    for (const ended_call& each : ended) each.done(each.error);
  }
  /// The communicator that it was opened on goes: true if MPI still has messages there.
  bool leave() noexcept {
    if (!talks() || place_.own) return false;
    std::vector<ended_call> ended;
    {
      const std::lock_guard hold(planes_->mutex);
      fail(make_error_code(errc::closed), ended);
    }
    const bool has_left = leave_messages(ended);
    for (const ended_call& each : ended) each.done(each.error);
    return has_left;
  }

  void start(const comm::collective_call& call, comm::backend_completion done) {
    progress::engine& engine = engine_;  // this may be gone once the list is unlocked
    // These may take MPI's lock, which comes first.
    const std::size_t size = block_size(call.type);
    const reducer reduce = is_reduction(call.kind) ? reducer(call.type, call.op) : reducer();
    std::shared_ptr<plane_list> to_rouse;
    std::error_code refused;
    {
      const std::lock_guard hold(planes_->mutex);
      if (!broken_) {
        try {
          planes_->make_room(planes_->pending.load(std::memory_order_relaxed));
          sequences_[call.order].push(call, size, reduce, done);
          if (planes_->began(call.count * size) && planes_->late.sleeps()) to_rouse = planes_;
        } catch (...) {
          // The calls of the other ranks are one ahead from now on.
          broken_ = std::make_error_code(std::errc::not_enough_memory);
        }
      }
      refused = broken_;
    }
    if (refused) return done(refused);
    if (to_rouse) to_rouse->late.rouse();
    engine.started();
  }
  /// See comm::any_backend.
  comm::backend_run run(const comm::collective_call& call, comm::late_operation& op,
                        std::error_code& error) {
    constexpr unsigned most_looks = 100;
    if (talks()) return comm::backend_run::not_begun;
    const std::size_t size = block_size(call.type);
    const reducer reduce = is_reduction(call.kind) ? reducer(call.type, call.op) : reducer();
    bool has_ended = false;
    bool rouses = false;
    std::uint64_t looks = 0;
    {
      const std::lock_guard hold(planes_->mutex);
      if (broken_ || planes_->pending.load(std::memory_order_relaxed) != 0)
        return comm::backend_run::not_begun;
      try {
        planes_->make_room(0);
        sequences_[call.order].push(call, size, reduce, {});
      } catch (...) {  // as in `start`
        error = broken_ = std::make_error_code(std::errc::not_enough_memory);
        return comm::backend_run::ended;
      }
      planes_->late.looked();
      std::vector<ended_call>& ended = planes_->ended;
      while (ended.empty() && looks != most_looks) {
        ++looks;
        advance(ended, false);
      }
      has_ended = !ended.empty();
      if (has_ended) {
        error = ended.front().error;
        ended.clear();
      } else {
        sequences_[call.order].tell(comm::backend_completion(engine_, op.get()));
        rouses = planes_->began(call.count * size) && planes_->late.sleeps();
      }
    }
    engine_.count_looks(static_cast<unsigned>(looks), has_ended ? 1 : 0);
    if (error) planes_->log_told();
    if (rouses) planes_->late.rouse();
    return has_ended ? comm::backend_run::ended : comm::backend_run::begun;
  }
  bool forget(const comm::request_operation& op) noexcept {
    const std::lock_guard hold(planes_->mutex);
    for (sequence& each : sequences_) {
      const sequence::forgotten done = each.forget(op);
      if (done == sequence::forgotten::none) continue;
      if (done == sequence::forgotten::here) {
        planes_->no_longer_pending(1);
        return true;
      }
      // No message is begun any more from anybody's memory, or to it. Ends what has not begun.
      end_all(make_error_code(errc::closed), planes_->ended);
      return false;
    }
    return false;
  }

  // With the list locked. Who calls `advance` takes what has ended off the number of the pending.
  unsigned advance(std::vector<ended_call>& ended, bool aside) {
    unsigned advanced = 0;
    if (talks() && !aside) aside = !mpi::running() || !mpi::is_allowed_thread();
    for (sequence& each : sequences_) {
      advanced += each.advance(ended, aside);
      if (each.is_broken() && !broken_) [[unlikely]] {
        break_off(make_error_code(errc::cross_rank_mismatch), each.mismatch(), ended);
      } else if (talks() && each.failure() && !broken_) [[unlikely]] {
        const std::string what = std::string(each.verb()) + ": messages between nodes: ";
        break_off(each.failure(), what + each.failure().message(), ended);
      }
    }
    return advanced;
  }
  /// Whether its ranks are on several nodes.
  [[nodiscard]] bool talks() const noexcept { return talks_; }
  void fail(std::error_code why, std::vector<ended_call>& ended) {
    const std::size_t before = ended.size();
    end_all(why, ended);
    planes_->no_longer_pending(ended.size() - before);
  }
  /// Nobody looks any more.
  void end(std::vector<ended_call>& ended) {
    const std::error_code why = make_error_code(errc::engine_stopped);
    fail(why, ended);
    for (sequence& each : sequences_) {
      if (each.pending() != 0 && each.leave()) fail(why, ended);
    }
  }
  /// Without the list locked, after `fail`: what MPI still has stays as long as the process. True
  /// if there is something; else all has ended.
  bool leave_messages(std::vector<ended_call>& ended);
  void seal() noexcept { memory_.seal(); }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_.bytes(); }
  /// For as long as its memory.
  void keep(std::shared_ptr<const void> what) noexcept { kept_ = std::move(what); }
  [[nodiscard]] const std::vector<sequence>& sequences() const noexcept { return sequences_; }
  [[nodiscard]] std::vector<sequence>& sequences() noexcept { return sequences_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes().size(); }

 private:
  // The other ranks see it too, and end theirs.
  void break_off(std::error_code why, const std::string& what, std::vector<ended_call>& ended) {
    std::string text;
    try {
      text = "rank " + std::to_string(place_.map->rank_here(place_.map->place())) +
             ": shared memory: " + what + "; no collective goes through it any more";
    } catch (const std::bad_alloc&) {
    }
    end_all(why, ended);
    planes_->told = std::move(text);
  }
  void end_all(std::error_code why, std::vector<ended_call>& ended) {
    for (sequence& each : sequences_) each.fail(why, ended);
    broken_ = why;
  }

  std::shared_ptr<plane_list> planes_;
  progress::engine& engine_;
  plane_place place_;
  bool talks_;
  std::shared_ptr<const void> kept_;
  segment memory_;
  std::vector<sequence> sequences_;
  std::error_code broken_;
};

inline bool plane::leave_messages(std::vector<ended_call>& ended) {
  struct left_to_mpi {
    segment memory;
    mpi::comm over;
    std::vector<sequence> sequences;  // their calls too: MPI writes to what their callers own
  };
  static auto& left = *new std::vector<left_to_mpi>;  // outlives static objects
  const mpi::lock calls;
  const std::lock_guard hold(planes_->mutex);
  bool all_left = true;
  for (sequence& each : sequences_) all_left = each.leave() && all_left;
  fail(broken_, ended);
  if (all_left) return false;
  for (const sequence& each : sequences_) planes_->no_longer_pending(each.pending());
  place_.own.keep();
  left.push_back({std::move(memory_), std::move(place_.own), std::move(sequences_)});
  sequences_.clear();
  return true;
}

COHORT_INLINE void plane_list::log_told() {
  std::string text;
  {
    const std::lock_guard hold(mutex);
    text.swap(told);
  }
  if (!text.empty()) log::write(log::level::error, text);
}

COHORT_INLINE unsigned plane_list::advance(bool aside) {
  unsigned advanced = 0;
  for (plane* each : all) advanced += each->advance(ended, aside);
  return advanced;
}

COHORT_INLINE std::size_t source::test(progress::ready_queue&) {
  if (pending() == 0) return 0;
  unsigned advanced = 0;
  bool tells = false;
  bool logs = false;
  planes_->late.looked();
  {
    // MPI's lock comes before that of the planes. The engine has it already.
    const mpi::lock calls(planes_->talking.load(std::memory_order_relaxed) != 0);
    const std::lock_guard hold(planes_->mutex);
    advanced = planes_->advance(false);
    // Without MPI's lock, after its end, two threads may be here: one tells at a time.
    tells = !planes_->ended.empty() && !planes_->is_telling.load(std::memory_order_acquire);
    if (tells) {
      planes_->ended.swap(planes_->spare);
      planes_->is_telling.store(true, std::memory_order_relaxed);
      planes_->no_longer_pending(planes_->spare.size());
    }
    logs = !planes_->told.empty();
  }
  if (logs) [[unlikely]]
    planes_->log_told();
  if (advanced != 0) {
    engine_.started();  // the wait begins anew
  } else if (engine_.oversubscribed() || planes_->talking.load(std::memory_order_relaxed) != 0) {
    // The rank that is waited for may need this core; or the system, to move what comes over a
    // wire.
    std::this_thread::yield();
  }
  return tells ? tell() : 0;
}

/// What is in `spare`.
COHORT_INLINE std::size_t source::tell() {
  std::vector<ended_call>& ended = planes_->spare;
  // MPI may call a message sent that is still here, and the call that it was of has ended.
  if (planes_->talking.load(std::memory_order_relaxed) != 0) engine_.attend_sent();
  for (const ended_call& each : ended) each.done.in_look(each.error);
  const std::size_t found = ended.size();
  ended.clear();
  planes_->is_telling.store(false, std::memory_order_release);
  return found;
}

// Only this process writes to the buffers of its calls, so they can end: but for messages.
COHORT_INLINE void source::end() {
  std::vector<ended_call> ended;
  {
    const mpi::lock calls(planes_->talking.load(std::memory_order_relaxed) != 0);
    const std::lock_guard hold(planes_->mutex);
    for (plane* each : planes_->all) each->end(ended);
    planes_->no_longer_pending(planes_->ended.size());
    ended.insert(ended.end(), planes_->ended.begin(), planes_->ended.end());
    planes_->ended.clear();
  }
  for (const ended_call& each : ended) each.done(each.error);
}

COHORT_INLINE void source::abandon() {
  std::vector<plane*> all;
  {
    const std::lock_guard hold(planes_->mutex);
    all = planes_->all;
  }
  std::vector<ended_call> ended;
  for (plane* each : all) {
    if (each->talks()) each->leave_messages(ended);
  }
  for (const ended_call& each : ended) each.done(each.error);
}

COHORT_INLINE void source::list(progress::pending_lines& lines) {
  const std::lock_guard hold(planes_->mutex);
  for (plane* each : planes_->all) {
    for (sequence& one : each->sequences()) {
      if (one.pending() != 0 && lines.names(one.age())) lines.add(one.line(), one.age());
    }
  }
}

}  // namespace cohort::shm::detail
