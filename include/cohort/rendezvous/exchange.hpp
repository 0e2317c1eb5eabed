// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A rendezvous over MPI: the node of this rank, its messages, and large values.

#include <cohort/comm/channel.hpp>
#include <cohort/comm/communicator.hpp>
#include <cohort/core/short_lock.hpp>
#include <cohort/progress/kept_objects.hpp>
#include <cohort/progress/look_task.hpp>
#include <cohort/progress/stall_watch.hpp>
#include <cohort/rendezvous/endpoint.hpp>
#include <cohort/rendezvous/node.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::meeting {

/// One rank of a rendezvous.
///
/// Two locks. The request source's guards all that touches MPI; `mutex_` guards the node, and is
/// taken inside it, never around it. What a call of the user has to say leaves at the next look.
/// Neither is held while a value is destroyed whose destructor may be the program's.
///
/// Messages go over one communicator, into one receive from any rank; large values over a second
/// one, under the tag that the receiver has chosen.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class exchange final : public endpoint,
                       private comm::look_hook,
                       private comm::channel::client,
                       public std::enable_shared_from_this<exchange<Any>> {
 public:
  /// Throws error(errc::invalid_argument) for options out of range.
  exchange(progress::engine& engine, const rendezvous_options& options);
  ~exchange() override;
  static std::shared_ptr<exchange> make(progress::engine& engine,
                                        const rendezvous_options& options);

  /// This rank's options are out of range: it is opened only to say so.
  void refuse() noexcept { refuses_ = true; }

  void initialize(const communicator& world) override;
  [[nodiscard]] std::uint64_t incarnation(int rank) override;
  [[nodiscard]] step_ptr step(step_id id) override;
  void send(step_state& step, const rendezvous_key& key, packet_ptr value) override;
  void receive(step_state& step, const rendezvous_key& key, receiver& one) override;
  void cancel(step_state& step, receiver& one, const std::exception_ptr& why) override;
  void drain(step_state& step, receiver& one) override;
  void stop_draining(step_state& step, receiver& one, const std::exception_ptr& why) override;
  void release(step_state& step) noexcept override;
  [[nodiscard]] std::vector<waiting_key> waiting(const step_state& step) override;
  void abort(step_state& step, const std::exception_ptr& why) override;
  void cleanup(step_id id) override;
  void cleanup_all() override;
  void sweep() override;
  [[nodiscard]] std::vector<step_id> steps() override;
  void wait_closed(receiver& one) override;
  void stop_waiting(receiver& one, const std::exception_ptr& why) override;
  [[nodiscard]] std::vector<leaked_value> leaks() override;
  [[nodiscard]] rendezvous_statistics statistics() override;
  void leave_in_place() noexcept override;
  /// And no look is inside it any more.
  [[nodiscard]] bool closed() const noexcept override {
    const lock hold(mutex_);
    return closed_.load();
  }
  void abandon() override;
  void drive() override;

 private:
  using clock = progress::engine::clock;
  using node = basic_node<>;
  using lock = std::unique_lock<short_lock>;
  class transfer_operation;
  class closing;
  class dropped_values;
  class look_lock;
  /// What ranks tell each other first.
  struct facts {
    std::uint64_t incarnation;
    std::uint64_t chunk;  // 0: the rank refuses its options
  };
  std::size_t at_look() override;
  void at_tick(clock::time_point now) override;
  void list_waiting(std::string& text, clock::time_point now) override;
  void used(step_state& step) const noexcept {
    step.last_use.store(engine_.coarse_now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// From this rank to itself: no other rank and no lock but the table's has to do with it.
  [[nodiscard]] bool is_own(const rendezvous_key& key) const noexcept {
    const int me = rank();
    return me >= 0 && key.source == me && key.destination == me &&
           (key.source_incarnation == 0 || key.source_incarnation == incarnation_);
  }
  /// After a call of the user, without locks: what is to be said leaves at the next look.
  void touch();
  template <class Call>
  void call(Call what) {
    packet_list dropped;  // destroyed last
    {
      const lock hold(mutex_);
      what();
      if (!node_.dropped().empty()) dropped = std::move(node_.dropped());
    }
    touch();
  }

  bool wait_in_place();

  // Take the node's lock.
  void received(int from, unsigned kind, std::span<const std::byte> message) override;
  void sent(int to) override;
  void malformed(int from, const char* what) override;
  void failed(int peer, bool sends, std::error_code why) override;
  void settled() override;

  // With both locks.
  [[nodiscard]] progress::look_task<> open_with_others();
  void opened(communicator made, const std::vector<facts>& all);
  [[nodiscard]] std::exception_ptr differing(const std::vector<facts>& all) const;
  void flush(bool all);
  void look_soon();
  void send(int to);
  void lose(int peer, std::error_code why);
  void has_lost(int peer);
  void miss();
  void start_transfers();
  void break_down(const std::exception_ptr& why);
  void stay_awake();
  void advance_closing();
  void begin_closing();
  void check_released();
  void finish_closing();
  void end_closers(const std::exception_ptr& why);
  void leave_has_expired();
  [[nodiscard]] std::string late_text() const;
  void report(const std::vector<leaked_value>& leaks, const char* what) const;
  /// Who waits here and of whose age `wanted` says true, the first of them; a line break and a line
  /// each.
  template <class Predicate>
  [[nodiscard]] std::string who_waits(clock::time_point now, Predicate wanted) const;
  void sweep_locked(clock::time_point now);

  const rendezvous_options options_;
  communicator world_;    // given
  communicator control_;  // messages on its data, large values and rounds on its exchange
  std::atomic<comm::request_source*> source_{nullptr};
  std::atomic<bool> look_wanted_{false};

  mutable short_lock mutex_;
  node node_;
  comm::channel channel_;  // touched with the guard
  std::uint64_t messages_expected_ = 0;
  std::size_t operations_ = 0;                  // of this class, inside MPI
  std::vector<transfer_operation*> transfers_;  // of these
  std::uint64_t chunks_ = 0;                    // sent
  closing* closing_ = nullptr;
  int round_ = 0;  // of closing
  bool round_runs_ = false;
  receiver_list closers_;
  std::exception_ptr broken_;
  std::vector<leaked_value> leaks_;
  bool refuses_ = false;
  bool ready_ = false;
  bool left_ = false;
  bool leave_expired_ = false;
  int missed_ = 0;  // of process::missing
  bool abandoned_ = false;
  std::atomic<bool> closed_{false};
  clock::time_point leave_until_ = clock::time_point::max();
  clock::time_point last_sweep_{};
  progress::stall_watch stalls_;
  bool may_stall_ = false;  // somebody waits who may have to be named, maybe for this rank itself
};

}  // namespace cohort::meeting
