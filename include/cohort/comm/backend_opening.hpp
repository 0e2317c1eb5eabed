// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How ranks open a backend together that nobody has given them.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/progress/look_task.hpp>

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cohort::comm {

/// Whether the ranks of `over` open one: backend_choice::automatic, all on one node, with programs
/// that can. Every rank knows the same without asking. *Requires* `over` to be open.
[[nodiscard]] bool chooses_backend(const communicator_state& over) noexcept;

/// What was opened; null on all ranks if one of them cannot.
using opened_backend = std::shared_ptr<any_backend>;

namespace detail {

/// Collectives of the library, apart from those of the user.
[[nodiscard]] inline auto tell(const communicator& over, void* bytes, std::size_t size, int root) {
  const MPI_Comm beside = over.state()->exchange.native();
  return joint::request(over, [=](MPI_Request* posted) {
    return mpi::post::ibcast(bytes, static_cast<MPI_Count>(size), MPI_BYTE, root, beside, posted);
  });
}

/// One line from rank 0: of the first one in a process a warning.
inline void log_choice(const communicator& over, std::string_view what_for, const std::string& why,
                       std::string_view name) {
  if (over.rank() != 0) return;
  static std::atomic<bool> warned{false};
  const std::string who = std::string(what_for) + " of " + std::to_string(over.size()) + " ranks: ";
  if (why.empty()) {
    log::write(log::level::info, who + "its collectives go through " + std::string(name));
  } else {
    const bool is_first = !warned.exchange(true, std::memory_order_relaxed);
    log::write(is_first ? log::level::warning : log::level::info,
               who + why + "; its collectives go through MPI");
  }
}

}  // namespace detail

/// Opens one with `orders` sequences of collectives, over the `exchange` of this communicator, on
/// which the ranks do nothing else meanwhile. `what_for` is for the log. Where a rank cannot, rank
/// 0 logs which and why.
template <std::same_as<communicator> Communicator>
progress::look_task<opened_backend> open_backend_together(Communicator over, std::uint32_t orders,
                                                          const char* what_for) {
  const int rank = over.rank();
  const auto ranks = static_cast<std::uint64_t>(over.size());
  std::unique_ptr<backend_maker> maker;
  std::array<char, 256> why{};
  bool failed = false;
  const auto attempt = [&](auto action) {
    try {
      if (!failed) action();
    } catch (const std::exception& problem) {
      failed = true;
      std::string_view(problem.what()).copy(why.data(), why.size() - 1);
    }
  };
  attempt([&] {
    const new_backend_maker make = node_backend_maker.load(std::memory_order_relaxed);
    maker = make(over.state()->engine, rank, over.size(), orders);
  });

  struct {
    backend_maker::address where{};
    std::uint64_t is_there = 0;
  } told;
  if (rank == 0) {
    attempt([&] { told.where = maker->begin(); });
    told.is_there = failed ? 0 : 1;
  }
  auto telling = detail::tell(over, &told, sizeof told, 0);
  co_await telling;
  if (rank != 0 && told.is_there != 0) attempt([&] { maker->join(told.where); });

  opened_backend made;
  if (told.is_there != 0) attempt([&] { made = maker->end(); });

  // Of the ranks that cannot, the lowest is named.
  std::uint64_t lowest = failed ? ranks - static_cast<std::uint64_t>(rank) : 0;
  const MPI_Comm beside = over.state()->exchange.native();
  auto agreeing = joint::request(over, [&lowest, beside](MPI_Request* posted) {
    return mpi::post::iallreduce(MPI_IN_PLACE, &lowest, 1, MPI_UINT64_T, MPI_MAX, beside, posted);
  });
  co_await agreeing;
  if (lowest == 0) {
    maker->all_have_joined();
    detail::log_choice(over, what_for, {}, made->name());
    co_return made;
  }
  const int first = static_cast<int>(ranks - lowest);
  auto explaining = detail::tell(over, why.data(), why.size(), first);
  co_await explaining;
  detail::log_choice(over, what_for, "rank " + std::to_string(first) + ": " + why.data(), {});
  co_return opened_backend();
}

}  // namespace cohort::comm
