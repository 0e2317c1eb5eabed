// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One elected operation, or a pack, under way on this rank.

#include <cohort/coordinator/data/device_calls.hpp>
#include <cohort/coordinator/data/lane.hpp>
#include <cohort/coordinator/data/packed_calls.hpp>
#include <cohort/coordinator/data/whole_calls.hpp>
#include <cohort/coordinator/instance.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <vector>

namespace cohort::coordination {

/// One elected operation, or a pack, under way on this rank.
template <class Any>
class basic_execution {
 public:
  explicit basic_execution(basic_data_plane<Any>& plane) noexcept : plane_(plane) {}
  basic_execution(const basic_execution&) = delete;
  basic_execution& operator=(const basic_execution&) = delete;

  std::vector<task*> tasks;
  std::uint64_t log_count = 0;
  bool known = false;  ///< sizes are those of `rows`
  bool is_join = false;
  std::uint64_t newest = 0;  ///< join: log count of this rank's newest data
  std::shared_ptr<size_vector> rows;
  const set_place* here = nullptr;
  bool keeps_layout = false;  ///< the next use has the same tensors, which travel alike
  clock::time_point elected;
  clock::time_point begun;

  /// Looks at the tasks: from here on it is known how many parts there are.
  void prepare() {
    if (is_join) {
      bytes_ = sizeof(join_value_);
      return;
    }
    for (task* one : tasks) {
      for (std::size_t i = 0; i < one->tensors(); ++i) {
        tensor& each = (*one)[i];
        if (each.kernels == nullptr) continue;
        take_factors(each, *one);
        each.divisor = divisor(*one, here->size);
        each.all_bring = one->kind == op_kind::message ||
                         one->contributors == static_cast<std::uint64_t>(here->size);
        packs_.tensors.push_back(&each);
        bytes_ += each.bytes();
      }
    }
    if (fuses()) packs_.split();
  }
  [[nodiscard]] bool exchanges() const noexcept { return sized() && !known; }
  /// Whether MPI gets parts after the first one.
  [[nodiscard]] bool later_parts() const noexcept {
    return (exchanges() && !on_device()) || packs_.calls.size() > 1;
  }
  /// All of a pack are in one memory space.
  [[nodiscard]] bool on_device() const noexcept {
    return !is_join && tasks.front()->space != memory_space::host;
  }
  /// Posts the first part. Throws std::system_error or std::bad_alloc.
  void start(std::uint32_t slot) {
    slot_ = slot;
    started_ = true;
    begun = plane_.traced ? clock::now() : plane_.state_->engine.coarse_now();
    if (tools::watched()) {
      const std::string_view verb = is_join ? "join" : tasks.front()->verb();
      watched_.begin(tools::category::data, tools::literal(verb), bytes_);
    }
    if (on_device()) return device_.start();
    const MPI_Comm where = packs_.calls.size() <= 1 ? here->shared : here->slots[slot_];
    const std::size_t lanes =
        fuses() ? std::min<std::size_t>(plane_.options_.pieces_in_flight, packs_.calls.size()) : 1;
    for (std::size_t i = 0; i < lanes; ++i) {
      lane_to_post on = new_lane();
      if (is_join) {
        post_newest(*on);
      } else if (exchanges()) {
        sizes_.exchange(*on);
      } else if (fuses()) {
        packs_.post_next(*on, where);
        count(*on, packs_.calls[on->call].bytes);
      } else if (sized()) {
        sizes_.post(*on, where);
        count(*on, bytes_);
      } else {
        whole_.post(*on, where);
        count(*on, bytes_);
      }
      static_cast<void>(on.release());
    }
  }
  [[nodiscard]] bool has_started() const noexcept { return started_; }
  /// Whether MPI may write to memory of a caller now. All other memory lies here or in stand-ins.
  [[nodiscard]] bool borrows() const noexcept {
    if (is_join ||
        std::none_of(tasks.begin(), tasks.end(), [](const task* one) { return one->linked; })) {
      return false;
    }
    if (on_device()) return device_.has_it;
    if (sized()) return sizes_.exchanged || known;
    if (fuses()) {
      return std::any_of(packs_.calls.begin(), packs_.calls.end(),
                         [this](const auto& one) { return !packs_.packs(one); });
    }
    const op_kind kind = tasks.front()->kind;
    return kind != op_kind::barrier && !is_persistent(kind);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Copying into and out of packs, for the timeline.
  struct span {
    phase what;
    clock::time_point begin;
    clock::time_point end;
    std::size_t bytes;
  };
  [[nodiscard]] const std::vector<span>& spans() const noexcept { return spans_; }
  /// A join's result: the rank with the newest data.
  [[nodiscard]] std::uint64_t newest_rank() const noexcept {
    return join_value_ % static_cast<std::uint64_t>(here->size);
  }
  /// So that it can be used again.
  void reset() noexcept {
    tasks.clear();
    here = nullptr;
    known = is_join = started_ = false;
    newest = log_count = 0;
    lanes_ = slot_ = 0;
    bytes_ = 0;
    rows.reset();
    failed_ = {};
    spans_.clear();
    packs_.reset(keeps_layout);
    whole_.reset();
    sizes_.reset();
    device_.reset();
  }

 private:
  friend basic_lane<Any>;
  friend basic_data_plane<Any>;
  friend packed_calls<Any>;
  friend whole_calls<Any>;
  friend sized_calls<Any>;
  friend device_calls<Any>;

  [[nodiscard]] bool sized() const noexcept { return !is_join && is_sized(tasks.front()->kind); }
  [[nodiscard]] bool fuses() const noexcept {
    return !is_join && !on_device() && is_fusible(tasks.front()->kind);
  }
  /// Bytes that are under way at a time.
  [[nodiscard]] std::size_t load() const noexcept {
    if (on_device()) return 0;  // its backend knows what it bears
    if (packs_.calls.size() < 2) return bytes_;
    const coordinator_options& options = plane_.options_;
    return std::min(bytes_, static_cast<std::size_t>(options.piece) * options.pieces_in_flight);
  }
  void add(lane& on, int return_code, const MPI_Request& request) {
    mpi::check(return_code, on.verb);
    plane_.state_->source.add(request, on);
  }
  bool give_to_backend(lane& on, comm::collective_call what, MPI_Comm where) {
    if (plane_.backend_ == nullptr) return false;
    what.order = where == here->shared ? 0 : 1 + slot_;
    if (!plane_.backend_->takes(what)) return false;
    auto& lanes = plane_.with_backend_;
    if (lanes.size() == lanes.capacity()) lanes.reserve(2 * lanes.size() + 8);
    plane_.backend_->start(what, comm::backend_completion(plane_.state_->engine, on));
    on.waits_for_turn_ = true;  // without a request, and not at its end
    lanes.push_back(&on);
    return true;
  }
  /// Counts what has just been posted or given away.
  void count(const lane& on, std::size_t bytes) noexcept {
    const auto by = on_device()                              ? &coordinator_statistics::by_device
                    : on.waits_for_turn_ && !whole_.creation ? &coordinator_statistics::by_backend
                                                             : &coordinator_statistics::by_mpi;
    plane_.owner_.data_started(*this, by, bytes);
  }
  struct never_posted {
    void operator()(lane* on) const noexcept;
  };
  /// A lane until it has posted. One that has not when this goes is nobody's, for the engine will
  /// not deliver it.
  using lane_to_post = std::unique_ptr<lane, never_posted>;
  [[nodiscard]] lane_to_post new_lane() {
    auto* fresh = new lane(*this);
    fresh->verb = is_join ? "join" : tasks.front()->verb().data();
    fresh->sequence = log_count;
    fresh->rank = here->rank;
    fresh->bytes = std::min<std::size_t>(bytes_, std::size_t{1} << 30);
    ++lanes_;
    return lane_to_post(fresh);
  }
  // The newest data, and among equals the highest rank.
  void post_newest(lane& on) {
    const auto size = static_cast<std::uint64_t>(here->size);
    join_value_ = newest * size + static_cast<std::uint64_t>(here->rank);
    MPI_Request request = MPI_REQUEST_NULL;
    add(on,
        mpi::post::iallreduce(MPI_IN_PLACE, &join_value_, 1, MPI_UINT64_T, MPI_MAX, here->shared,
                              &request),
        request);
  }
  /// The requests of a lane are complete. True if it goes on.
  // Nothing escapes from here: what goes wrong is remembered and ends the execution. A stage may
  // have posted some of its requests by then: the lane goes on until MPI is done with these, for
  // they work on memory of callers.
  bool step(lane& on) {
    if (on.waits_for_turn_)
      std::erase(on.on_device ? plane_.with_device_ : plane_.with_backend_, &on);
    on.waits_for_turn_ = false;
    if (on.on_device) device_.has_it = false;
    if (given_up_) return false;
    try {
      const auto take = [this](mpi::comm made) { *tasks.front()->made = made.release(); };
      if (whole_.creation && whole_.creation->goes_on(take)) return true;
      whole_.creation.reset();
      if (on.failed()) fail(on.error());
      if (!failed_ && goes_on(on)) return true;
    } catch (const std::system_error& problem) {
      fail(problem.code());
    } catch (...) {
      fail(std::make_error_code(std::errc::not_enough_memory));
    }
    const bool more = comm::request_source::pending(on);
    if (!more) {
      on.owner = nullptr;
      if (on.pack) on.pack = {};
      --lanes_;
    }
    plane_.settle(*this);
    return more;
  }
  // What comes after the requests of a lane: finishes what they were for, and posts the next.
  bool goes_on(lane& on) {
    if (is_join) return false;
    if (on_device()) {
      device_.go_on(on);
      return false;
    }
    if (exchanges() && !sizes_.exchanged) {
      sizes_.take();
      plane_.queue_.exchanged(log_count);
      sizes_.post(on, here->slots[slot_]);
      count(on, bytes_);
    } else if (!fuses()) {
      if (!sized()) whole_.finish();
      return false;
    } else {
      const MPI_Comm where = packs_.calls.size() <= 1 ? here->shared : here->slots[slot_];
      if (packs_.goes_on(on, where)) return true;
      packs_.finish(on);
      if (packs_.all_posted()) return false;
      packs_.post_next(on, where);
      count(on, packs_.calls[on.call].bytes);
      if (!packs_.all_posted()) return true;
    }
    plane_.queue_.posted_last(here->set, slot_);
    plane_.run();
    return true;
  }
  void fail(std::error_code why) noexcept {
    if (!failed_) failed_ = why;
    packs_.post_no_more();
  }

  basic_data_plane<Any>& plane_;
  packed_calls<Any> packs_{*this};
  whole_calls<Any> whole_{*this};
  sized_calls<Any> sizes_{*this};
  device_calls<Any> device_{*this};
  std::uint32_t slot_ = 0;
  std::uint32_t lanes_ = 0;  // under way
  bool started_ = false;
  bool given_up_ = false;  // for good: it is never used again
  std::size_t bytes_ = 0;
  std::size_t load_ = 0;
  std::uint64_t join_value_ = 0;
  std::error_code failed_;
  std::vector<span> spans_;
  tools::range watched_;  // from the start to the end
};

template <class Any>
void basic_execution<Any>::never_posted::operator()(lane* on) const noexcept {
  if (comm::request_source::pending(*on)) return;
  --on->owner->lanes_;
  on->owner = nullptr;
  delete on;
}

}  // namespace cohort::coordination
