// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// One rank of the task graph on the engine: its scopes, and the turn in which it does what has
/// become possible.

#include <cohort/comm/backend_opening.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/graph/runtime/delays.hpp>
#include <cohort/graph/runtime/host.hpp>
#include <cohort/graph/runtime/messenger.hpp>
#include <cohort/graph/runtime/naming.hpp>
#include <cohort/graph/runtime/scheduler.hpp>
#include <cohort/graph/runtime/scope_on_node.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/look_task.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::graph::runtime {

/// Everything happens in turns, and a turn is asked for by whatever happens: a spawn, an await, the
/// end of a task, a message. A turn
///
/// 1. runs ready tasks, for a slice;
/// 2. does what the nodes say: posts receives, ends awaits and windows;
/// 3. sends what they have written;
/// 4. if tasks are left, looks, and has another turn behind whatever else the loop has to do.
///
/// A rank on which nothing happens has no turn, and its engine sleeps until a message rings.
template <class Any>
class rank_host final : public host,
                        public std::enable_shared_from_this<rank_host<Any>>,
                        public scope_owner,
                        private comm::mailbox::owner,
                        private messenger<Any>::client {
 public:
  rank_host(progress::engine& engine, const communicator& world, const tasks_options& options)
      : engine_(engine),
        options_(options),
        rank_(world.rank()),
        ranks_(world.size()),
        endpoint_(rank_, ranks_),
        messenger_(endpoint_, *this, rank_),
        scheduler_(engine, options.threads),
        turn_(*this) {}

  /// Makes the communicators, and compares the functions of the ranks over them. Collective.
  void start(const communicator& world) {
    if (ranks_ == 1) return;
    // To its end, also where this rank closes meanwhile: the others wait for it. [graph X6]
    progress::begin_look_task(
        open_together(world), {.verb = "graph::tasks"},
        [self = this->shared_from_this()](const std::exception_ptr& why, opening made) {
          if (self->ended_ || self->closed_) return;
          self->failed_opening_ = why;
          self->made_ = std::move(made);
          self->wake();  // not in a look
        });
  }

  // ---- host ----
  [[nodiscard]] open_scope& open(const scope_options& asked) override {
    if (leaving_ || ended_) throw cohort::error(errc::closed, "graph: no scope is opened any more");
    if (other_program_) std::rethrow_exception(other_program_);
    const auto at = openings_.try_emplace(asked.name(), 0).first;
    machine::node_options with;
    with.rank = rank_;
    with.ranks = ranks_;
    with.eager = options_.eager;
    with.credit = options_.credit;
    with.fail_fast = options_.fail_fast;
    with.patient = true;
    with.agreed = agreed();
    if (asked.hashes()) with.agreed += ", hashes";
    scope& one = free_scope();
    one.open(endpoint_, {hash_of(asked.name()).low, ++at->second}, with, asked);
    open_.push_back(&one);
    return one;
  }
  void abandon(open_scope& one) noexcept override try {
    if (ended_ || engine_.stopped()) return;
    auto& mine = static_cast<scope&>(one);
    machine::failure cause;
    cause.code = errc::cancelled;
    cause.rank = rank_;
    cause.text = "the program of the scope has gone";
    mine.node()->cancel(std::move(cause));
    mine.node()->end_window({}, machine::window_end::close);
    wake();
  } catch (const std::exception& problem) {
    log::write(log::level::error, std::string("graph: leaving a scope: ") + problem.what());
  }
  [[nodiscard]] std::exception_ptr verdict(const report& ended,
                                           std::exception_ptr thrown) const override {
    if (other_program_) return other_program_;
    if (thrown) return thrown;
    if (ended.cancelled) return exception_of(cancellation_by(*ended.cancelled));
    const bool diverged = !ended.divergences.empty() && !options_.warn_on_divergence;
    if (!diverged && ended.failed == 0 && !ended.first_failure) return nullptr;
    if (!diverged && ended.first_failure) {
      report without = ended;
      without.divergences.clear();
      return nested_in(graph::error(without), exception_within(*ended.first_failure));
    }
    return std::make_exception_ptr(graph::error(ended));
  }
  void leave() noexcept override {
    leaving_ = true;
    wake();
  }
  using host::abandon;
  [[nodiscard]] bool closed() const noexcept override { return closed_; }
  void end() override {
    ended_ = true;
    timer_.reset();
    until_others_leave_.reset();
    scheduler_.stop();
    messenger_.leave_to_mpi();
  }
  void drive() override {}
  void settle_tasks() override {}
  void destroy_tasks() override {
    for (scope* const one : std::vector(open_)) one->drop_waiters();
  }

  using scope_owner::wake;
  void task_ended() { messenger_.task_ended(); }

 private:
  using scope = scope_on_node<Any>;

  class turn_operation final : public progress::operation {
   public:
    explicit turn_operation(rank_host& of) noexcept : operation(&run), owner_(of) {}
    std::shared_ptr<rank_host> keep;

   private:
    static void run(operation* base, action what) {
      auto& self = *static_cast<turn_operation*>(base);
      const std::shared_ptr<rank_host> hold = std::move(self.keep);
      self.owner_.turn_is_due_ = false;
      if (what != action::destroy) self.owner_.turn();
    }
    rank_host& owner_;
  };

  [[nodiscard]] scope& free_scope() {
    for (const auto& each : scopes_) {
      if (!each->is_open() && !each->has_program) return *each;
    }
    scopes_.push_back(std::make_unique<scope>(*this, engine_, rank_, ranks_));
    return *scopes_.back();
  }
  /// What must be equal on all ranks (graph K3).
  [[nodiscard]] std::string agreed() const {
    std::string text = "eager " + std::to_string(options_.eager) + ", credit " +
                       std::to_string(options_.credit) + ", fail_fast " +
                       (options_.fail_fast ? "yes" : "no");
    return text;
  }

  /// The communicators, and the digest of the functions by rank.
  struct opening {
    communicator over;
    std::shared_ptr<comm::message_rings> rings;
    std::vector<sha256_digest> programs;
  };
  static progress::look_task<opening> open_together(communicator world) {
    opening made;
    auto duplicating = comm::joint::duplicate(std::move(world));
    made.over = co_await duplicating;
    const sha256_digest mine = function_table::instance().digest();
    made.programs.resize(static_cast<std::size_t>(made.over.size()));
    auto asking = comm::joint::all_gather(made.over, mine, made.programs);
    co_await asking;
    auto opening_rings = comm::open_rings(made.over, "graph");
    made.rings = co_await opening_rings;
    co_return made;
  }
  void try_to_open() {
    if (!made_.over && !failed_opening_) return;
    opening made = std::exchange(made_, opening());
    if (const auto why = std::exchange(failed_opening_, nullptr)) {
      return lose_all("no communicators: " + describe_exception(why));
    }
    rank_set others;
    for (int each = 0; each < ranks_; ++each) {
      if (made.programs[static_cast<std::size_t>(each)] != made.programs.front()) {
        others.insert(each);
      }
    }
    if (others.empty()) {
      messenger_.open(std::move(made.over), std::move(made.rings),
                      std::shared_ptr<comm::mailbox::owner>(this->shared_from_this(), this));
    } else {
      failure why;
      why.code = errc::binary_mismatch;
      why.rank = others.list().front();
      why.text = "rank " + std::to_string(rank_) + ": graph: " + ranks_text(others) +
                 " and rank 0 differ in their functions: all ranks must run the same program";
      other_program_ = std::make_exception_ptr(graph::error(why));
      lose_all(why.text);
    }
  }
  void lose_all(const std::string& why) {
    for (int each = 0; each < ranks_; ++each) {
      if (each != rank_) messenger_.lose(each, why);
    }
    wake();
  }

  void turn() {
    if (ended_) return;
    try_to_open();
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        engine_.coarse_now().time_since_epoch());
    for (scope* const one : open_) one->set_time(static_cast<std::uint32_t>(now.count()));
    if (std::exchange(has_news_, false)) {  // others wait for the answers while tasks run here
      do_actions();
      messenger_.flush();
    }
    messenger_.begin_turn();
    const bool more = scheduler_.run_slice(open_, *this);
    // In turns that follow one another the time is looked at; else a timer ends it.
    const auto due = delays_.look(open_);
    if (due && !more) start_timer(*due);
    do_actions();
    messenger_.flush();
    if (more) {
      engine_.look();  // first, so that what has arrived stands before the turn
      if (!turn_is_due_) {
        turn_is_due_ = true;
        turn_.keep = this->shared_from_this();
        engine_.loop().post(turn_);
      }
    }
    if (leaving_) try_to_close();
  }
  void do_actions() {
    for (std::size_t i = 0; i < open_.size();) {
      if (open_[i]->is_open() && !open_[i]->do_actions()) {
        ++i;
      } else {
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
  void start_timer(std::chrono::steady_clock::time_point due) {
    if (timer_waits_) return;
    if (!timer_) timer_.emplace(engine_.context());
    timer_->expires_at(due);
    timer_waits_ = true;
    timer_->async_wait([self = this->shared_from_this()](const std::error_code&) {
      self->timer_waits_ = false;
      self->wake();
    });
  }
  // Nobody waits for this rank any more once all are told that it leaves. It waits for them to free
  // the communicators, but not for long. [graph X6]
  void try_to_close() {
    if (closed_ || !open_.empty()) return;
    if (!messenger_.leave()) {
      if (until_others_leave_) return;
      until_others_leave_.emplace(engine_.context(), engine_.drain_bound());
      until_others_leave_->async_wait([self = this->shared_from_this()](const std::error_code&) {});
      return;
    }
    closed_ = true;
    until_others_leave_.reset();
    timer_.reset();
    messenger_.close();
  }
  [[nodiscard]] static std::exception_ptr exception_within(const failure& why) {
    if (why.exception.empty()) return nullptr;
    wire::reader in(why.exception);
    return progress::decode_exception(in);
  }

  // ---- scope_owner ----
  [[nodiscard]] std::uint64_t next_number() noexcept override { return ++last_number_; }
  void post_receive(const machine::action& one) override {
    messenger_.receive_value(one.rank, one.tag, one.bytes);
  }
  void send_value(const machine::action& one) override {
    messenger_.send_value(one.rank, one.tag, one.what);
  }
  // For which `run` throws unless the options say otherwise (graph D2).
  void window_ended(const machine::window_report& how) override {
    if (!options_.warn_on_divergence || rank_ != 0) return;
    for (const divergence& one : how.divergences) {
      log::write(log::level::warning, "graph: " + one.text);
    }
  }
  [[nodiscard]] std::shared_ptr<void> keep() override { return this->shared_from_this(); }
  void ask_for_turn() noexcept override {
    if (ended_) return;
    turn_is_due_ = true;
    turn_.keep = this->shared_from_this();
    engine_.post(&turn_);
  }

  // ---- comm::mailbox::owner ----
  void received(int from, unsigned kind, std::span<const std::byte> message) override {
    if (!ended_) messenger_.received(from, kind, message);
  }
  void sent(int to, std::error_code failed) override {
    if (ended_) return;
    messenger_.sent(to, failed);
    if (leaving_) wake();
  }
  void failed(int peer, std::error_code why) override {
    if (!ended_) messenger_.failed(peer, why);
  }
  void settled() override {
    if (closed_ && !ended_) messenger_.release();
  }
  void has_news() noexcept override {
    has_news_ = true;
    wake();
  }

  progress::engine& engine_;
  const tasks_options options_;
  const int rank_;
  const int ranks_;
  machine::basic_endpoint<Any> endpoint_;
  messenger<Any> messenger_;
  scheduler<Any> scheduler_;
  turn_operation turn_;
  std::vector<std::unique_ptr<scope>> scopes_;  // handles may still name those that have closed
  std::vector<scope*> open_;
  std::map<std::string, std::uint64_t, std::less<>> openings_;
  std::uint64_t last_number_ = 0;
  opening made_;  // until a turn looks at it
  std::exception_ptr failed_opening_;
  std::exception_ptr other_program_;
  std::optional<asio::steady_timer> timer_;
  delays<Any> delays_;
  std::optional<asio::steady_timer> until_others_leave_;  // keeps the loop
  bool has_news_ = false;
  bool timer_waits_ = false;
  bool leaving_ = false;
  bool ended_ = false;
  bool closed_ = false;
};

template <class Any>
std::shared_ptr<host> make_host(const communicator& world, const tasks_options& options) {
  if (!world) throw cohort::error(errc::invalid_communicator, "graph::tasks");
  if (options.threads < 0) throw cohort::error(errc::invalid_argument, "graph::tasks: threads");
  progress::engine& engine = world.state()->engine;
  auto one = std::make_shared<rank_host<Any>>(engine, world, options);
  asio::use_service<progress::kept_until_closed<host>>(engine.context()).add(one);
  one->start(world);
  return one;
}

}  // namespace cohort::graph::runtime
