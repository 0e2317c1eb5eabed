// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a communicator gets the backend that nobody has set: backend_choice::automatic.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/exception.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/progress/look_task.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::comm::detail {

/// Has a place in the queue of a communicator's collectives, and keeps those behind it from being
/// posted. It frees itself; `here` is null then.
class held_place final : public request_operation {
 public:
  using pointer = std::shared_ptr<held_place*>;

  /// With the guard held.
  [[nodiscard]] static pointer take(communicator_state& comm) {
    auto made = std::make_unique<held_place>(comm);
    made->check_->hold();
    poster to(comm, *made);
    made->check_->post({}, to);
    pointer here = made->here_;
    *here = made.release();
    return here;
  }
  explicit held_place(communicator_state& comm)
      : request_operation(&run),
        check_(comm.source.make_check(comm, *this, [](request_operation*) noexcept {})),
        here_(std::make_shared<held_place*>(nullptr)) {
    verb = "backend";
    stalls = false;
  }
  /// What waits is posted. With the guard held.
  static void open(const pointer& here) {
    if (*here != nullptr) (*here)->check_->open({});
  }

 private:
  static void run(progress::operation* base, action) {
    const std::unique_ptr<held_place> self(static_cast<held_place*>(base));
    *self->here_ = nullptr;
  }
  std::unique_ptr<argument_check> check_;
  pointer here_;
};

/// Collectives of the library, apart from those of the user.
[[nodiscard]] inline auto tell(const communicator& over, void* bytes, std::size_t size, int root) {
  const MPI_Comm beside = over.state()->exchange.native();
  return joint::request(over, [=](MPI_Request* posted) {
    return mpi::post::ibcast(bytes, static_cast<MPI_Count>(size), MPI_BYTE, root, beside, posted);
  });
}

using opened_backend = std::shared_ptr<any_backend>;

template <std::same_as<communicator> Communicator>
progress::look_task<opened_backend> open_together(Communicator over,
                                                  std::shared_ptr<backend_maker> maker,
                                                  std::string unmade) {
  const int rank = over.rank();
  const auto ranks = static_cast<std::uint64_t>(over.size());
  std::array<char, 256> why{};
  bool failed = false;
  const auto attempt = [&](auto action) {
    try {
      if (!maker) throw std::runtime_error(unmade);
      action();
    } catch (const std::exception& problem) {
      failed = true;
      std::string_view(problem.what()).copy(why.data(), why.size() - 1);
    }
  };

  struct {
    backend_maker::address where{};
    std::uint64_t is_there = 0;
  } told;
  if (rank == 0) {
    attempt([&] { told.where = maker->begin(); });
    told.is_there = failed ? 0 : 1;
  }
  auto telling = tell(over, &told, sizeof told, 0);
  co_await telling;
  if (rank != 0 && told.is_there != 0) attempt([&] { maker->join(told.where); });

  opened_backend made;
  if (told.is_there != 0 && !failed) attempt([&] { made = maker->end(); });

  // Of the ranks that cannot, the lowest is named.
  std::uint64_t lowest = failed ? ranks - static_cast<std::uint64_t>(rank) : 0;
  const MPI_Comm beside = over.state()->exchange.native();
  auto agreeing = joint::request(over, [&lowest, beside](MPI_Request* posted) {
    return mpi::post::iallreduce(MPI_IN_PLACE, &lowest, 1, MPI_UINT64_T, MPI_MAX, beside, posted);
  });
  co_await agreeing;
  if (lowest == 0) {
    maker->all_have_joined();
    co_return made;
  }
  const int first = static_cast<int>(ranks - lowest);
  auto explaining = tell(over, why.data(), why.size(), first);
  co_await explaining;
  if (rank == 0) {
    log::write(log::level::warning, "communicator of " + std::to_string(ranks) + " ranks: rank " +
                                        std::to_string(first) + ": " + why.data() +
                                        "; its collectives go through MPI");
  }
  co_return opened_backend();
}

/// What is done at the end.
struct opening_end {
  communicator_state* of;
  held_place::pointer place;

  void operator()(const std::exception_ptr& why, opened_backend made) const {
    const request_source::guard hold(of->source);
    const bool is_used = made && of->choosing == backend_choosing::under_way;
    of->choosing = backend_choosing::over;
    if (is_used) of->backend = made;
    held_place::open(place);
    if (why) {
      log::write(log::level::error, "communicator: no backend: " + describe_exception(why));
    } else if (is_used && of->data.rank() == 0) {
      log::write(log::level::info, "communicator of " + std::to_string(of->data.size()) +
                                       " ranks: its collectives go through " +
                                       std::string(made->name()));
    }
  }
};

}  // namespace cohort::comm::detail

namespace cohort::comm {

COHORT_INLINE void communicator_state::open_backend() {
  choosing = backend_choosing::over;
  const new_backend_maker make = node_backend_maker.load(std::memory_order_relaxed);
  if (make == nullptr || !bells) return;
  for (int each = 0; each < data.size(); ++each) {
    if (!bells->may_share_backend(bell_rank(each))) return;  // known to all ranks
  }
  // A rank that cannot tells the others.
  std::shared_ptr<backend_maker> maker;
  std::string unmade;
  try {
    maker = make(engine, data.rank(), data.size());
  } catch (const std::exception& problem) {
    unmade = problem.what();
  }
  const detail::held_place::pointer place = detail::held_place::take(*this);
  choosing = backend_choosing::under_way;
  try {
    progress::begin_look_task(
        detail::open_together(communicator::of(*this), std::move(maker), std::move(unmade)),
        {.verb = "backend"}, detail::opening_end{this, place});
  } catch (...) {
    choosing = backend_choosing::over;
    detail::held_place::open(place);
    throw;
  }
}

}  // namespace cohort::comm
