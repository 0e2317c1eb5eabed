// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/backend.hpp.

#include <cohort/comm/backend_opening.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/log.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/shm/backend.hpp>
#include <cohort/shm/between/nodes.hpp>
#include <cohort/shm/plane/planes.ipp>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cohort::shm {

namespace detail {

/// Where the ranks of a communicator are.
[[nodiscard]] inline std::shared_ptr<const node_map> map_of(const comm::communicator_state& over) {
  const auto ranks = static_cast<std::size_t>(over.data.size());
  std::vector<std::uint64_t> on(ranks, 0);
  for (std::size_t rank = 0; rank < ranks && over.bells; ++rank) {
    on[rank] = static_cast<std::uint64_t>(over.node_of(static_cast<int>(rank)));
  }
  return std::make_shared<node_map>(over.data.rank(), on);
}

/// Makes the plane of one rank.
class plane_maker {
 public:
  /// `is_chosen`: nobody has asked for it. `beside`: bytes at the end of the segment that are not
  /// the plane's.
  plane_maker(source& by, plane_place place, const backend_options& options, bool is_chosen = false,
              std::size_t beside = 0)
      : by_(by),
        place_(std::move(place)),
        options_(options),
        is_chosen_(is_chosen),
        beside_(beside) {}

  /// On the lowest rank of a node, which makes its segment.
  [[nodiscard]] segment::address begin() {
    segment memory(options_.orders * sequence::bytes(place_.map->size_here(), options_.chunk) +
                   beside_);
    const segment::address where = memory.where();
    make(std::move(memory));
    return where;
  }
  void join(const segment::address& where) { make(segment(where)); }
  /// Null if neither has been done.
  [[nodiscard]] const std::shared_ptr<plane>& made() const noexcept { return made_; }

 private:
  void make(segment memory) {
    made_ =
        std::make_shared<plane>(by_, std::move(memory), std::move(place_), options_, is_chosen_);
  }
  source& by_;
  plane_place place_;
  backend_options options_;
  bool is_chosen_;
  std::size_t beside_;
  std::shared_ptr<plane> made_;
};

/// Messages take longer to come than memory: more of them are under way then.
[[nodiscard]] inline std::size_t chunk_for(const comm::communicator_state& over,
                                           std::size_t asked = 0) noexcept {
  if (asked != 0) return asked;
  return over.is_on_one_node() || !over.bells ? std::size_t{128} << 10U : std::size_t{1} << 20U;
}

/// What is wrong with the options; nothing if all is right.
COHORT_INLINE std::string complaint(const backend_options& options) {
  const auto bad = [](const char* field, std::size_t value, const char* range) {
    return std::string("shm::backend_options::") + field + "=" + std::to_string(value) + ": " +
           range;
  };
  if (options.chunk < 1024 || options.chunk > (std::size_t{64} << 20U) || options.chunk % 64 != 0) {
    return bad("chunk", options.chunk, "a multiple of 64 from 1 KiB to 64 MiB");
  }
  if (options.orders == 0 || options.orders > 64) return bad("orders", options.orders, "1 to 64");
  return {};
}

}  // namespace detail

COHORT_INLINE std::size_t backend::bytes() const noexcept {
  return plane_ == nullptr ? 0 : plane_->bytes();
}

COHORT_INLINE std::string_view backend::name() const noexcept {
  if (!active()) return "";
  return plane_->talks() ? "hierarchical" : "shm";
}

COHORT_INLINE bool backend::takes(const comm::collective_call& call) const noexcept {
  return plane_ != nullptr && call.order < plane_->sequences().size() &&
         plane_->sequences()[call.order].takes(call);
}

COHORT_INLINE bool backend::forget(const comm::request_operation& op) const noexcept {
  return plane_->forget(op);
}

COHORT_INLINE bool backend::leave() const noexcept { return plane_ != nullptr && plane_->leave(); }

COHORT_INLINE void backend::start(const comm::collective_call& call,
                                  comm::backend_completion done) const {
  plane_->start(call, done);
}

COHORT_INLINE comm::backend_run backend::run(const comm::collective_call& call,
                                             comm::late_operation& op,
                                             std::error_code& error) const {
  return plane_->run(call, op, error);
}

namespace detail {

template <std::same_as<communicator> Communicator>
asio::awaitable<backend> make_together(Communicator world, backend_options options) {
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const auto rank = static_cast<std::uint64_t>(world.rank());
  auto& by = asio::use_service<detail::source>(world.state()->engine.context());
  options.chunk = detail::chunk_for(*world.state(), options.chunk);
  const std::string bad = detail::complaint(options);
  std::string why = bad;
  detail::plane_place place;
  place.map = detail::map_of(*world.state());
  if (place.map->nodes() != 1) {
    communicator duplicate = co_await world.dup();
    place.own = std::move(duplicate.state()->data);  // it outlives the context, where need be
    place.messages = place.own.native();
  }
  const std::shared_ptr<const detail::node_map> map = place.map;
  const auto first_here = static_cast<std::size_t>(map->rank_here(0));
  detail::plane_maker maker(by, std::move(place), options);
  const auto attempt = [&why](auto action) {
    try {
      action();
    } catch (const std::exception& problem) {
      why = problem.what();
    }
  };
  segment::address own;
  if (map->place() == 0 && bad.empty()) attempt([&] { own = maker.begin(); });
  std::array<std::byte, sizeof(segment::address)> packed{};
  std::memcpy(packed.data(), &own, sizeof own);
  std::vector<std::byte> addresses(packed.size() * ranks);
  co_await all_gather(world, packed, addresses);
  segment::address where;
  std::memcpy(&where, addresses.data() + first_here * packed.size(), sizeof where);
  if (map->place() != 0 && where.bytes != 0 && bad.empty()) attempt([&] { maker.join(where); });
  std::shared_ptr<detail::plane> made = maker.made();

  // The largest of each value and of its complement tell of the same value where all agree.
  const std::array<std::uint64_t, 3> values{options.chunk, options.whole_up_to, options.orders};
  std::array<std::uint64_t, 7> told{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    told[2 * i] = values[i];
    told[2 * i + 1] = ~values[i];
  }
  // Of the ranks that cannot, the lowest is named.
  told[6] = made == nullptr ? ranks - rank : 0;
  co_await all_reduce(world, told, op::max);
  if (made != nullptr) made->seal();  // all that could have mapped it
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (told[2 * i] == ~told[2 * i + 1]) continue;
    constexpr std::array names{"chunk", "whole_up_to", "orders"};
    throw error(errc::cross_rank_mismatch,
                "rank " + std::to_string(world.rank()) + ": shm::backend_options::" + names[i] +
                    "=" + std::to_string(values[i]) + " is not the same on all ranks");
  }
  if (!bad.empty()) throw error(errc::invalid_argument, bad);
  if (told[6] != 0) {
    const std::size_t first = ranks - static_cast<std::size_t>(told[6]);
    // Only that rank knows the reason, but all give it to whoever asks.
    std::array<char, 512> text{};
    why.copy(text.data(), text.size() - 1);
    co_await broadcast(world, text, static_cast<int>(first));
    why = "rank " + std::to_string(first) + ": " + text.data();
    if (rank == 0) log::write(log::level::warning, "shm::make_backend: " + why + "; MPI is used");
    co_return backend(nullptr, why);
  }
  co_return backend(std::move(made), std::string());
}

}  // namespace detail

namespace detail {

class automatic_maker final : public comm::backend_maker {
 public:
  automatic_maker(const comm::communicator_state& over, MPI_Comm beside,
                  const comm::backend_wish& wish)
      : maker_(asio::use_service<source>(over.engine.context()),
               {map_of(over), beside, comm::backend_tag, {}},
               {.chunk = chunk_of(over, wish), .orders = wish.orders},
               over.is_on_one_node() || over.options.backend != backend_choice::hierarchical,
               wish.bytes_beside),
        beside_(wish.bytes_beside),
        bytes_(wish.orders * sequence::bytes(over.is_on_one_node() ? 1 : 2, chunk_of(over, wish)) +
               wish.bytes_beside / static_cast<std::size_t>(over.peers)),
        most_(wish.memory) {}

  address begin() override {
    share_ = std::make_shared<automatic_memory>(bytes_, most_);
    const segment::address where = maker_.begin();
    address packed{};
    static_assert(sizeof where <= sizeof packed);
    std::memcpy(packed.data(), &where, sizeof where);
    return packed;
  }
  void join(const address& of) override {
    share_ = std::make_shared<automatic_memory>(bytes_, most_);
    segment::address where;
    std::memcpy(&where, of.data(), sizeof where);
    maker_.join(where);
  }
  std::shared_ptr<comm::any_backend> end() override {
    maker_.made()->keep(std::move(share_));
    return std::make_shared<comm::backend_holder<backend>>(backend(maker_.made(), std::string()));
  }
  std::span<std::byte> beside() noexcept override { return maker_.made()->memory().last(beside_); }
  void all_have_joined() noexcept override { maker_.made()->seal(); }

 private:
  /// Several orders are seldom busy at once.
  static std::size_t chunk_of(const comm::communicator_state& over,
                              const comm::backend_wish& wish) noexcept {
    return over.is_on_one_node() || wish.orders == 1 ? chunk_for(over) : chunk_for(over) / 2;
  }

  plane_maker maker_;
  std::size_t beside_;
  std::size_t bytes_;
  std::size_t most_;
  std::shared_ptr<automatic_memory> share_;
};

template <std::same_as<comm::communicator_state> State>
std::unique_ptr<comm::backend_maker> make_automatic(const State& over, MPI_Comm beside,
                                                    const comm::backend_wish& wish) {
  return std::make_unique<automatic_maker>(over, beside, wish);
}

}  // namespace detail

template <class Any>
const comm::backend_opening* backend_opener<Any>::opening() noexcept {
  return &comm::opening_with<detail::make_automatic<comm::communicator_state>>;
}

template <std::same_as<communicator> Communicator>
asio::awaitable<backend> make_backend(Communicator world, backend_options options) {
  return progress::uncancelled(detail::make_together(std::move(world), std::move(options)));
}

}  // namespace cohort::shm
