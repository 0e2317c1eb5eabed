// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How ranks open a backend together that nobody has given them.

#include <cohort/comm/backend.hpp>
#include <cohort/comm/communicator_state.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/comm/message_rings.hpp>
#include <cohort/comm/switch_point.hpp>
#include <cohort/core/exception.hpp>
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
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::comm {

/// Whether the ranks of `over` open one: none of them says backend_choice::mpi, all choose alike,
/// are on one node, and have programs that can. Every rank knows the same without asking.
/// *Requires* `over` to be open.
[[nodiscard]] bool chooses_backend(const communicator_state& over) noexcept;
/// The same where ranks on several nodes may have one, for they wait for each other's engines
/// anyway.
[[nodiscard]] bool chooses_backend_over_nodes(const communicator_state& over) noexcept;

/// What was opened; nothing on all ranks if one of them cannot.
struct opened_backend {
  std::shared_ptr<any_backend> backend;
  std::span<std::byte> beside;  ///< lives as long as the backend; none over several nodes
};

namespace detail {

[[nodiscard]] inline auto tell(const communicator& over, MPI_Comm beside, void* bytes,
                               std::size_t size, int root) {
  return joint::request(over, [=](MPI_Request* posted) {
    return mpi::post::ibcast(bytes, static_cast<MPI_Count>(size), MPI_BYTE, root, beside, posted);
  });
}

/// One line; a warning if it is the first failure in this process.
inline void log_choice(const communicator& over, std::string_view what_for, const std::string& why,
                       std::string_view name) {
  static std::atomic<bool> warned{false};
  const std::string who = std::string(what_for) + " of " + std::to_string(over.size()) + " ranks: ";
  if (why.empty()) {
    log::write(log::level::info, who + "goes through " + std::string(name));
  } else {
    const bool is_first = !warned.exchange(true, std::memory_order_relaxed);
    log::write(is_first ? log::level::warning : log::level::info, who + why + "; goes through MPI");
  }
}

}  // namespace detail

/// As far as a rank comes alone: the memory is there, and mapped. The ranks of `over` do nothing
/// else meanwhile on `beside`, which has the same.
template <std::same_as<communicator> Communicator>
progress::look_task<backend_offer> offer_backend(Communicator over, MPI_Comm beside,
                                                 backend_wish wish) {
  const int rank = over.rank();
  wish.memory = *over.state()->options.shared_memory;
  backend_offer mine;
  bool failed = false;
  const auto attempt = [&](auto action) {
    try {
      if (!failed) action();
    } catch (const std::exception& problem) {
      failed = true;
      const auto* of_system = dynamic_cast<const std::system_error*>(&problem);
      // The first has ended, or taken it away: nobody misses it.
      if (of_system != nullptr && of_system->code() == std::errc::no_such_file_or_directory) return;
      std::string_view(problem.what()).copy(mine.why.data(), mine.why.size() - 1);
    }
  };
  const bool several = !over.state()->is_on_one_node();
  if (several) wish.bytes_beside = 0;
  while (over.state()->node_of(mine.first) != over.state()->node_of(rank)) ++mine.first;
  attempt([&] { mine.maker = over.state()->opening->make(*over.state(), beside, wish); });

  struct announcement {
    backend_maker::address where{};
    std::uint64_t is_there = 0;
  };
  announcement told;
  if (rank == mine.first) {
    attempt([&] { told.where = mine.maker->begin(); });
    told.is_there = failed ? 0 : 1;
  }
  if (several) {  // each node has its own, and what all tell is little
    std::vector<announcement> all(static_cast<std::size_t>(over.size()));
    auto gathering = joint::request(over, [&](MPI_Request* posted) {
      constexpr auto bytes = static_cast<MPI_Count>(sizeof told);
      return mpi::post::iallgather(&told, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, beside,
                                   posted);
    });
    co_await gathering;
    told = all[static_cast<std::size_t>(mine.first)];
  } else {
    auto telling = detail::tell(over, beside, &told, sizeof told, 0);
    co_await telling;
  }
  mine.is_there = told.is_there != 0;
  if (rank != mine.first && mine.is_there) attempt([&] { mine.maker->join(told.where); });
  if (mine.is_there) attempt([&] { mine.made = mine.maker->end(); });
  co_return mine;
}

/// The same for all ranks or none, which waits for all of them. `what_for` is for the log. Where a
/// rank cannot, rank 0 logs which and why.
template <std::same_as<communicator> Communicator>
progress::look_task<opened_backend> open_backend_together(Communicator over, MPI_Comm beside,
                                                          backend_wish wish, const char* what_for) {
  auto offering = offer_backend(over, beside, wish);
  backend_offer mine = co_await offering;
  const auto ranks = static_cast<std::uint64_t>(over.size());
  // Of the ranks that cannot, the lowest is named.
  std::uint64_t lowest = mine.made ? 0 : ranks - static_cast<std::uint64_t>(over.rank());
  if (!mine.is_there) lowest = ranks - static_cast<std::uint64_t>(mine.first);
  auto agreeing = joint::request(over, [&lowest, beside](MPI_Request* posted) {
    return mpi::post::iallreduce(MPI_IN_PLACE, &lowest, 1, MPI_UINT64_T, MPI_MAX, beside, posted);
  });
  co_await agreeing;
  if (lowest == 0) {
    mine.maker->all_have_joined();
    if (over.rank() == 0) detail::log_choice(over, what_for, {}, mine.made->name());
    if (!over.state()->is_on_one_node()) co_return opened_backend{mine.made, {}};
    co_return opened_backend{mine.made, mine.maker->beside()};
  }
  const int first = static_cast<int>(ranks - lowest);
  auto explaining = detail::tell(over, beside, mine.why.data(), mine.why.size(), first);
  co_await explaining;
  if (over.rank() == 0) {
    const std::string who = "rank " + std::to_string(first) + ": ";
    detail::log_choice(over, what_for, who + mine.why.data(), {});
  }
  co_return opened_backend();
}

/// Rings in what was opened with `message_rings::bytes(ranks)` beside it, which they keep.
[[nodiscard]] inline std::shared_ptr<message_rings> rings_in(opened_backend made, int rank,
                                                             int ranks) {
  struct kept {
    std::shared_ptr<any_backend> memory;
    message_rings rings;
  };
  const message_rings rings(made.beside, rank, ranks);
  const auto all = std::make_shared<kept>(kept{std::move(made.backend), rings});
  return {all, &all->rings};
}

/// Rings between all ranks of `over`, if that chooses shared memory and all can; else null on all.
/// Over its `exchange`, on which the ranks do nothing else meanwhile.
template <std::same_as<communicator> Communicator>
progress::look_task<std::shared_ptr<message_rings>> open_rings(Communicator over,
                                                               const char* what_for) {
  if (!chooses_backend(*over.state())) co_return nullptr;
  const backend_wish wish{
      .orders = 0, .bytes_beside = message_rings::bytes(static_cast<std::size_t>(over.size()))};
  auto opening = open_backend_together(over, over.state()->exchange.native(), wish, what_for);
  opened_backend made = co_await opening;
  if (!made.backend) co_return nullptr;
  co_return rings_in(std::move(made), over.rank(), over.size());
}

namespace detail {

[[nodiscard]] inline switch_point switch_of(backend_offer& offer, int ranks) noexcept {
  return {*reinterpret_cast<switch_point::word*>(offer.maker->beside().data()), ranks};
}

/// This rank has done what it can alone. With the guard held.
struct opening_end {
  communicator_state* of;

  template <std::same_as<backend_offer> Offer>
  void operator()(const std::exception_ptr& failed, Offer mine) const {
    if (of->choosing != backend_choosing::under_way) return;
    if (mine.made) {
      auto kept = std::make_unique<backend_offer>(std::move(mine));
      detail::switch_of(*kept, of->data.size()).join(of->collectives);  // for good
      of->offer = std::move(kept);
      return;
    }
    of->choosing = backend_choosing::over;
    std::string why = failed ? describe_exception(failed) : std::string(mine.why.data());
    if (why.empty()) return;  // rank 0 has logged it
    why.insert(0, "rank " + std::to_string(of->data.rank()) + ": ");
    log_choice(communicator::of(*of), "communicator", why, {});
  }
};

// These and the end above are templates so that only files that construct a communicator compile
// them.

template <std::same_as<communicator_state> State>
void begin_opening(State& of) {
  progress::begin_look_task(
      offer_backend(communicator::of(of), of.exchange.native(), {.orders = 1, .bytes_beside = 64}),
      {.verb = "backend", .owner = &of, .stalls = false}, opening_end{&of});
  joint::operation::make_optional(of, &of);
}

/// All ranks have opened it, or none. Another thread may run the loop.
struct opening_over_nodes_end {
  struct result {
    std::exception_ptr failed;
    std::shared_ptr<any_backend> backend;
    std::atomic<bool> has_come{false};  // written last
  };
  std::shared_ptr<result> of;

  void operator()(const std::exception_ptr& failed, opened_backend made) const {
    of->failed = failed;
    of->backend = std::move(made.backend);
    of->has_come.store(true, std::memory_order_release);
  }
};

/// All ranks are in the constructor of the communicator, so nothing else of theirs waits for this.
template <std::same_as<communicator_state> State>
void open_over_nodes(State& of) {
  if (of.options.backend != backend_choice::hierarchical) return;
  if (!chooses_backend_over_nodes(of) || of.is_on_one_node()) return;
  const auto result = std::make_shared<detail::opening_over_nodes_end::result>();
  progress::begin_look_task(
      open_backend_together(communicator::of(of), of.exchange.native(), {}, "communicator"),
      {.verb = "backend", .owner = &of}, detail::opening_over_nodes_end{result});
  while (!result->has_come.load(std::memory_order_acquire)) of.engine.look();
  if (result->failed) std::rethrow_exception(result->failed);
  of.replace_backend(std::move(result->backend));
}

}  // namespace detail

/// How communicators open a backend that the makers of one layer make.
template <new_backend_maker Make>
inline constexpr backend_opening opening_with{Make, &detail::begin_opening<communicator_state>,
                                              &detail::open_over_nodes<communicator_state>};

}  // namespace cohort::comm
