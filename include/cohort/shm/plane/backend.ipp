// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/backend.hpp.

#include <cohort/core/log.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/shm/backend.hpp>
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

namespace cohort::shm {

namespace detail {

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

 private:
  COHORT_INLINE void list(progress::pending_lines& lines) override;

  progress::engine& engine_;
  std::shared_ptr<plane_list> planes_;
};

/// A mapped segment and its sequences. Everything but the constructor is called with the list
/// locked.
class plane {
 public:
  plane(source& by, segment memory, std::size_t rank, std::size_t ranks,
        const backend_options& options, bool is_chosen)
      : planes_(by.planes()), engine_(by.engine()), rank_(rank), memory_(std::move(memory)) {
    const std::size_t each = sequence::bytes(ranks, options.chunk);
    sequences_.reserve(options.orders);
    for (std::uint32_t i = 0; i < options.orders; ++i) {
      sequences_.emplace_back(memory_.bytes().subspan(i * each, each), rank, ranks, options.chunk,
                              options.whole_up_to, is_chosen);
    }
    const std::lock_guard hold(planes_->mutex);
    planes_->all.push_back(this);
  }
  plane(const plane&) = delete;
  plane& operator=(const plane&) = delete;
  ~plane() {
    std::vector<ended_call> ended;
    {
      const std::lock_guard hold(planes_->mutex);
      std::erase(planes_->all, this);
      fail(make_error_code(errc::closed), ended);
    }
    for (const ended_call& each : ended) each.done(each.error);
  }

  void start(const comm::collective_call& call, comm::backend_completion done) {
    progress::engine& engine = engine_;              // this may be gone once the list is unlocked
    const std::size_t size = block_size(call.type);  // takes MPI's lock, which comes first
    try {
      const std::lock_guard hold(planes_->mutex);
      if (broken_) return done(broken_);
      try {
        const std::size_t pending = planes_->pending.load(std::memory_order_relaxed);
        planes_->make_room(pending);
        sequences_[call.order].push(call, size, done);
      } catch (...) {
        // The calls of the other ranks are one ahead from now on.
        broken_ = std::make_error_code(std::errc::not_enough_memory);
        return done(broken_);
      }
      if (planes_->pending.fetch_add(1) == 0) {
        planes_->bytes = 0;
        planes_->late.has_work();
      }
      planes_->bytes.fetch_add(call.count * size, std::memory_order_relaxed);
    } catch (...) {
      return done(std::make_error_code(std::errc::not_enough_memory));
    }
    engine.started();
  }
  bool forget(const comm::request_operation& op) noexcept {
    const std::lock_guard hold(planes_->mutex);
    for (sequence& each : sequences_) {
      if (!each.forget(op)) continue;
      planes_->pending.fetch_sub(1, std::memory_order_relaxed);
      return true;
    }
    return false;
  }

  // With the list locked. Who calls `advance` takes what has ended off the number of the pending.
  unsigned advance(std::vector<ended_call>& ended, bool aside) {
    unsigned advanced = 0;
    for (sequence& each : sequences_) {
      advanced += each.advance(ended, aside);
      if (each.is_broken() && !broken_) [[unlikely]]
        break_off(each, ended);
    }
    return advanced;
  }
  void fail(std::error_code why, std::vector<ended_call>& ended) {
    const std::size_t before = ended.size();
    end_all(why, ended);
    planes_->pending.fetch_sub(ended.size() - before, std::memory_order_relaxed);
  }
  void seal() noexcept { memory_.seal(); }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_.bytes(); }
  /// For as long as its memory.
  void keep(std::shared_ptr<const void> what) noexcept { kept_ = std::move(what); }
  [[nodiscard]] const std::vector<sequence>& sequences() const noexcept { return sequences_; }
  [[nodiscard]] std::vector<sequence>& sequences() noexcept { return sequences_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes().size(); }

 private:
  // The other ranks see it too, and end theirs.
  void break_off(const sequence& by, std::vector<ended_call>& ended) {
    std::string text;
    try {
      text = "rank " + std::to_string(rank_) + ": shared memory: " + by.mismatch() +
             "; no collective goes through it any more";
    } catch (const std::bad_alloc&) {
    }
    end_all(make_error_code(errc::cross_rank_mismatch), ended);
    planes_->told = std::move(text);
  }
  void end_all(std::error_code why, std::vector<ended_call>& ended) {
    for (sequence& each : sequences_) each.fail(why, ended);
    broken_ = why;
  }

  std::shared_ptr<plane_list> planes_;
  progress::engine& engine_;
  std::size_t rank_;
  std::shared_ptr<const void> kept_;
  segment memory_;
  std::vector<sequence> sequences_;
  std::error_code broken_;
};

COHORT_INLINE unsigned plane_list::advance(bool aside) {
  unsigned advanced = 0;
  for (plane* each : all) advanced += each->advance(ended, aside);
  return advanced;
}

COHORT_INLINE std::size_t source::test(progress::ready_queue&) {
  if (pending() == 0) return 0;
  unsigned advanced = 0;
  std::vector<ended_call> ended;
  std::string told;
  planes_->late.looked();
  {
    const std::lock_guard hold(planes_->mutex);
    advanced = planes_->advance(false);
    if (!planes_->ended.empty()) {
      ended.swap(planes_->ended);
      planes_->ended.swap(planes_->spare);
      planes_->is_telling = true;
      planes_->pending.fetch_sub(ended.size(), std::memory_order_relaxed);
    }
    if (!planes_->told.empty()) [[unlikely]]
      told.swap(planes_->told);
  }
  if (!told.empty()) [[unlikely]]
    log::write(log::level::error, told);
  if (advanced != 0) {
    engine_.started();  // the wait begins anew
  } else if (engine_.oversubscribed()) {
    std::this_thread::yield();  // the rank that is waited for may need this core
  }
  const std::size_t found = ended.size();
  if (found == 0) return 0;
  for (const ended_call& each : ended) each.done.in_look(each.error);
  ended.clear();
  const std::lock_guard hold(planes_->mutex);
  planes_->is_telling = false;
  planes_->spare.swap(ended);
  return found;
}

// Only this process writes to the buffers of its calls, so they can end.
COHORT_INLINE void source::end() {
  std::vector<ended_call> ended;
  {
    const std::lock_guard hold(planes_->mutex);
    for (plane* each : planes_->all) each->fail(make_error_code(errc::engine_stopped), ended);
    planes_->pending.fetch_sub(planes_->ended.size(), std::memory_order_relaxed);
    ended.insert(ended.end(), planes_->ended.begin(), planes_->ended.end());
    planes_->ended.clear();
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

/// Makes the plane of one rank.
class plane_maker {
 public:
  /// `is_chosen`: nobody has asked for it. `beside`: bytes at the end of the segment that are not
  /// the plane's.
  plane_maker(source& by, int rank, int ranks, const backend_options& options,
              bool is_chosen = false, std::size_t beside = 0)
      : by_(by),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)),
        options_(options),
        is_chosen_(is_chosen),
        beside_(beside) {}

  /// On the rank that has the segment.
  [[nodiscard]] segment::address begin() {
    segment memory(options_.orders * sequence::bytes(ranks_, options_.chunk) + beside_);
    const segment::address where = memory.where();
    make(std::move(memory));
    return where;
  }
  void join(const segment::address& where) { make(segment(where)); }
  /// Null if neither has been done.
  [[nodiscard]] const std::shared_ptr<plane>& made() const noexcept { return made_; }

 private:
  void make(segment memory) {
    made_ = std::make_shared<plane>(by_, std::move(memory), rank_, ranks_, options_, is_chosen_);
  }
  source& by_;
  std::size_t rank_;
  std::size_t ranks_;
  backend_options options_;
  bool is_chosen_;
  std::size_t beside_;
  std::shared_ptr<plane> made_;
};

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

COHORT_INLINE bool backend::takes(const comm::collective_call& call) const noexcept {
  return plane_ != nullptr && call.order < plane_->sequences().size() &&
         plane_->sequences()[call.order].takes(call);
}

COHORT_INLINE bool backend::forget(const comm::request_operation& op) const noexcept {
  return plane_->forget(op);
}

COHORT_INLINE void backend::start(const comm::collective_call& call,
                                  comm::backend_completion done) const {
  plane_->start(call, done);
}

namespace detail {

template <std::same_as<communicator> Communicator>
asio::awaitable<backend> make_together(Communicator world, backend_options options) {
  const auto ranks = static_cast<std::uint64_t>(world.size());
  const auto rank = static_cast<std::uint64_t>(world.rank());
  auto& by = asio::use_service<detail::source>(world.state()->engine.context());
  const std::string bad = detail::complaint(options);
  std::string why = bad;
  detail::plane_maker maker(by, world.rank(), world.size(), options);
  const auto attempt = [&why](auto action) {
    try {
      action();
    } catch (const std::exception& problem) {
      why = problem.what();
    }
  };
  segment::address own;
  if (rank == 0 && bad.empty()) attempt([&] { own = maker.begin(); });
  std::array<std::byte, sizeof(segment::address)> packed{};
  std::memcpy(packed.data(), &own, sizeof own);
  co_await broadcast(world, packed, 0);
  segment::address where;
  std::memcpy(&where, packed.data(), sizeof where);
  if (rank != 0 && where.bytes != 0 && bad.empty()) attempt([&] { maker.join(where); });
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
  automatic_maker(progress::engine& engine, int rank, int ranks, const comm::backend_wish& wish)
      : maker_(asio::use_service<source>(engine.context()), rank, ranks, {.orders = wish.orders},
               true, wish.bytes_beside),
        beside_(wish.bytes_beside),
        bytes_(wish.orders * sequence::bytes(1, backend_options().chunk) +
               wish.bytes_beside / static_cast<std::size_t>(ranks)),
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
  plane_maker maker_;
  std::size_t beside_;
  std::size_t bytes_;
  std::size_t most_;
  std::shared_ptr<automatic_memory> share_;
};

}  // namespace detail

COHORT_INLINE std::unique_ptr<comm::backend_maker> automatic_backend_maker(
    progress::engine& engine, int rank, int ranks, const comm::backend_wish& wish) {
  return std::make_unique<detail::automatic_maker>(engine, rank, ranks, wish);
}

template <std::same_as<communicator> Communicator>
asio::awaitable<backend> make_backend(Communicator world, backend_options options) {
  return progress::uncancelled(detail::make_together(std::move(world), std::move(options)));
}

}  // namespace cohort::shm
