// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What this rank has submitted and what has not ended: the only list of tasks.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator/data/compress.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/protocol/node.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace cohort::coordination {

inline constexpr std::size_t longest_name = 65535;

/// Verbs hand their tasks in, the log and the rest of the negotiation complete them. Whoever takes
/// one out of here ends it through the engine, exactly once.
template <class Any>
class submissions {
 public:
  explicit submissions(negotiation<Any>& log) noexcept : log_(log) {}

  void submit(task& one, std::string_view name, const protocol::signature& sig,
              const std::source_location& site, std::chrono::nanoseconds deadline) {
    if (one.wanted != compression::none) {
      protocol::signature wire = sig;
      compress<Any>(one, name, wire);
      return submit(one, name, wire, site, deadline);
    }
    if (one.space != memory_space::host) {
      if (std::string places = log_.device.locate(one); places != sig.places) {
        protocol::signature placed = sig;
        placed.places = std::move(places);
        return submit(one, name, placed, site, deadline);
      }
      if (!one.error) log_.device.admit(one, name, sig);
    }
    {
      const comm::request_source::guard hold(log_.source);
      ++one.view->counted.submitted;
      if (std::exception_ptr why = refuses(one, name, sig)) {
        one.fail(std::move(why));
        return complete(one);
      }
      note_site(site);
      const auto as = reinterpret_cast<std::uint64_t>(&one);
      const std::uint32_t set = one.view->place.set;
      const auto result =
          sig.kind == op_kind::message
              ? log_.node.submit(set, pair_name(one, name), sig, as, one.sizes, &site_)
              : log_.node.submit(set, name, sig, as, one.sizes, &site_);
      one.name = result.name;
      one.epoch = result.number;
      if (result.status != protocol::submission_status::pending) {
        one.fail(result.status == protocol::submission_status::failed
                     ? log_.reports.error_of(*one.view, name, one.verb(), *result.why)
                     : refusal(name));
        return complete(one);
      }
      one.operation_ref = result.operation;
      one.submitted = log_.now();
      one.watched.begin(tools::category::negotiate, {name}, sig.bytes());
      link(one);
      if (deadline > std::chrono::nanoseconds::zero()) set_deadline(one, clock::now() + deadline);
      withdraw_mistaken(one, name);
      if (!log_.life.has_opened()) {
        if (!log_.node.actions().empty())
          log_.performer.perform();  // the root has failed it at once
        return;
      }
      log_.source.at_next_look(log_);
      log_.stay_awake();
      unsent_ += sig.bytes();
      // What fills a pack is told at once: the first tensors of a burst are on their way while the
      // rest is submitted.
      if (unsent_ >= log_.options.fusion_buffer) log_.at_look();
    }
    log_.engine.started();
  }
  void join(task& one) {
    {
      const comm::request_source::guard hold(log_.source);
      ++one.view->counted.submitted;
      if (log_.faults.broken) {
        one.fail(log_.faults.broken);
        return complete(one);
      }
      const auto result = log_.node.join(one.view->place.set, 1);
      if (result.status == protocol::submission_status::pending) {
        one.view->joining = &one;
        log_.reports.forget_joins();
        one.submitted = log_.now();
        one.watched.begin(tools::category::negotiate, tools::literal("join"));
        link(one);
        if (log_.life.has_opened()) log_.source.at_next_look(log_);
      } else if (result.status == protocol::submission_status::failed) {
        one.fail(log_.reports.error_of(*one.view, "join", "join", *result.why));
        return complete(one);
      } else {
        one.fail(refusal("join"));
        return complete(one);
      }
      log_.stay_awake();
    }
    log_.engine.started();
  }
  /// With the guard held. The rank stays joined.
  void stop_joining(task& one) {
    one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
    complete(one);
    log_.stay_awake();
  }
  bool withdraw(task& one, protocol::withdrawal_reason reason) {
    {
      const comm::request_source::guard hold(log_.source);
      if (one.linked && one.started && reason == protocol::withdrawal_reason::deadline) {
        log_.device.pass_deadline(one);
      }
      if (!one.linked || one.started || log_.faults.broken) return false;
      if (!log_.life.has_opened()) return end_unheard(one, reason);
      if (!log_.sets.is_between(one) &&
          !log_.node.withdraw(one.operation_ref, reason, nanoseconds(clock::now()))) {
        return false;
      }
      one.withdrawn = true;
      one.withdrawn_for = reason;
      if (reason == protocol::withdrawal_reason::deadline && one.space != memory_space::host) {
        set_deadline(one, clock::now());  // if it is elected all the same
      }
      log_.source.at_next_look(log_);
      log_.stay_awake();
    }
    log_.engine.started();
    return true;
  }
  void link(task& one) noexcept {
    one.before = last_;
    one.after = nullptr;
    (last_ == nullptr ? first_ : last_->after) = &one;
    last_ = &one;
    one.linked = true;
  }
  void complete(task& one) noexcept {
    if (one.linked) {
      unlink(one);
      if (one.holds_name) log_.node.let_go(one.name);
      if (one.deadline != clock::time_point::max()) --deadlines_;
      if (log_.options.strict && one.name != protocol::none) {
        if (const auto used = in_use_.find(one.name); used != in_use_.end()) {
          if (--used->second == 0) in_use_.erase(used);
        }
      }
    }
    log_.sets.completed(one);
    one.watched.end();
    coordinator_statistics& counted = one.view->counted;
    ++(one.error ? counted.failed : counted.completed);
    ++completed_;
    if (first_ == nullptr) {
      if (log_.tuned.active()) log_.tuned.idle();
      log_.stay_awake();
    }
    log_.engine.complete(&one);
  }
  void fail_all(const std::exception_ptr& why) {
    for_each([&](task& each) {
      if (each.started) return;
      each.fail(why);
      complete(each);
    });
  }
  /// Withdraws what has not been decided in time.
  void expire(clock::time_point at) {
    if (deadlines_ == 0) return;
    for_each([&](task& each) {
      if (!each.withdrawn && each.deadline <= at) {
        withdraw(each, protocol::withdrawal_reason::deadline);
      }
    });
  }
  // What dies with one operation, a coroutine say, must not wait for another.
  void settle() {
    for_each([](task& each) {
      if (!each.started) each.settle();
    });
  }
  void destroy() {
    for_each([&](task& each) {
      if (each.started) return;
      unlink(each);  // reports may still come
      each.destroy();
    });
  }

  /// As the caller has given it.
  [[nodiscard]] std::string_view given_name(const task& one) const {
    return protocol::own_name(log_.node.name(one.name).text);
  }
  [[nodiscard]] std::exception_ptr refusal(std::string_view name) const {
    return std::make_exception_ptr(error(errc::not_accepting, "rank " + std::to_string(log_.rank) +
                                                                  ": '" + std::string(name) + "'"));
  }
  [[nodiscard]] std::size_t deadlines() const noexcept { return deadlines_; }
  [[nodiscard]] std::size_t completed() const noexcept { return completed_; }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] const task* oldest_undecided() const noexcept {
    const task* one = first_;
    while (one != nullptr && one->started) one = one->after;
    return one;
  }
  /// The earlier one counts.
  void set_deadline(task& one, clock::time_point at) noexcept {
    if (one.deadline == clock::time_point::max()) ++deadlines_;
    one.deadline = std::min(one.deadline, at);
  }
  /// What has been submitted is being announced.
  void announced() noexcept { unsent_ = 0; }
  /// In the order of submission; `visit` may complete it.
  template <class Visit>
  void for_each(Visit visit) const {
    for (task* each = first_; each != nullptr;) {
      task* const next = each->after;
      visit(*each);
      each = next;
    }
  }

 private:
  // Programs submit from few files, whose names are literals.
  void note_site(const std::source_location& site) {
    if (site.file_name() != file_) {
      file_ = site.file_name();
      site_.file.assign(file_);
    }
    site_.line = site.line();
  }
  void unlink(task& one) noexcept {
    (one.before == nullptr ? first_ : one.before->after) = one.after;
    (one.after == nullptr ? last_ : one.after->before) = one.before;
    one.linked = false;
  }
  // Before the negotiation is open nobody has heard of the operation. So it is certain how it ends,
  // and its awaiter need not wait, for some rank may open the negotiation late. For a deadline the
  // root would first ask who is ready and could elect the operation meanwhile; so the root is told
  // another reason.
  bool end_unheard(task& one, protocol::withdrawal_reason reason) {
    using protocol::withdrawal_reason;
    const rank_set here{log_.rank};
    protocol::verdict why;
    why.kind = protocol::failure_kind::withdrawn;
    why.rank = log_.rank;
    why.reason = reason;
    const withdrawal_reason own = reason;
    if (reason == withdrawal_reason::deadline) {
      why.asked = true;
      why.ready = here;
      why.unknown =
          one.kind == op_kind::message ? rank_set{one.peer} : rank_set::span(0, log_.size - 1);
      why.unknown.subtract(here);
      reason = withdrawal_reason::no_decision;
    }
    log_.node.replace_token(one.operation_ref, nobody);
    if (!log_.node.withdraw(one.operation_ref, reason, nanoseconds(clock::now()))) return false;
    one.fail(log_.reports.error_of(*one.view, given_name(one), one.verb(), why, own, not_open));
    complete(one);
    return true;
  }
  /// Both ends of a message find each other under this name. Its ranks are those of the node.
  [[nodiscard]] std::string pair_name(const task& one, std::string_view name) const {
    const int peer = one.view->outside(one.peer);
    return one.sends ? protocol::message_name(log_.rank, peer, name)
                     : protocol::message_name(peer, log_.rank, name);
  }
  /// Why a submission ends at once, without the others hearing of it; null if they do.
  [[nodiscard]] std::exception_ptr refuses(const task& one, std::string_view name,
                                           const protocol::signature& sig) const {
    errc bad = log_.source.usable();
    if (bad == errc{} && log_.engine.stopped()) bad = errc::engine_stopped;
    if (bad != errc{}) return std::make_exception_ptr(error(bad, "'" + std::string(name) + "'"));
    if (log_.faults.broken) return log_.faults.broken;
    if (name.size() > longest_name) {
      return std::make_exception_ptr(
          error(errc::invalid_argument,
                "a name of " + std::to_string(name.size()) + " bytes, more than 65535"));
    }
    if (!name.empty() && name.front() == '\x01') {
      return std::make_exception_ptr(error(errc::invalid_argument, "a reserved name"));
    }
    return sig.kind == op_kind::message ? refuses_peer(one, name) : nullptr;
  }
  /// A message to or from such a rank has no other end that could hear of it.
  [[nodiscard]] std::exception_ptr refuses_peer(const task& one, std::string_view name) const {
    const instance& where = *one.view;
    const bool is_rank = one.peer >= 0 && one.peer < where.size();
    if (is_rank && one.peer != where.rank()) return nullptr;
    return std::make_exception_ptr(
        error(is_rank ? errc::invalid_argument : errc::bad_rank,
              "rank " + std::to_string(where.rank()) + ": " + std::string(one.verb()) + " '" +
                  std::string(name) + "': " + (one.sends ? "to_rank=" : "from_rank=") +
                  std::to_string(one.peer) +
                  (is_rank ? " is this rank" : ", ranks=" + std::to_string(where.size()))));
  }
  /// A mistake of this rank: the submission takes its number all the same, so that all ranks agree.
  /// [protocol S3]
  void withdraw_mistaken(task& one, std::string_view name) {
    const bool duplicate =
        log_.options.strict && !name.empty() && !one.is_start && ++in_use_[one.name] > 1;
    if (!one.error && !duplicate) return;
    log_.node.withdraw(one.operation_ref, one.error ? protocol::withdrawal_reason::invalid
                                                    : protocol::withdrawal_reason::duplicate);
  }

  negotiation<Any>& log_;
  task* first_ = nullptr;
  task* last_ = nullptr;
  std::unordered_map<protocol::name_index, std::size_t> in_use_;  // strict mode
  protocol::call_site site_;                                      // of the latest submission
  const char* file_ = nullptr;                                    // whose name it has
  std::size_t deadlines_ = 0;
  std::uint64_t unsent_ = 0;   // bytes submitted since the last look
  std::size_t completed_ = 0;  // ever
};

}  // namespace cohort::coordination
