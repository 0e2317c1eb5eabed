// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One rank of a rendezvous as a pure state machine: it is given messages and calls, and
/// makes messages and transfers.

#include <cohort/rendezvous/interval_set.hpp>
#include <cohort/rendezvous/message.hpp>
#include <cohort/rendezvous/table.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// What a credit counts for a value besides its bytes.
inline constexpr std::uint64_t overhead_of_value = 64;

/// Maps with few entries that come and go with every message.
template <class Key, class Value>
using short_map =
    std::map<Key, Value, std::less<Key>, progress::pool_allocator<std::pair<const Key, Value>>>;
template <class Key, class Value>
using pooled_map = std::unordered_map<Key, Value, std::hash<Key>, std::equal_to<Key>,
                                      progress::pool_allocator<std::pair<const Key, Value>>>;

/// One step on one rank.
struct step_state : std::enable_shared_from_this<step_state> {
  explicit step_state(step_id number, bool single_use) : id(number), local(single_use) {}

  /// A value that this rank has sent and that waits to be asked for.
  struct held {
    std::uint64_t number;
    packet_ptr value;
  };
  /// A request that came before its value.
  struct parked {
    int peer;
    std::uint64_t id;
    std::uint64_t number;
  };
  /// What this rank and another one have sent each other in the step.
  struct link {
    std::uint64_t sent = 0;      // values, to there
    std::uint64_t received = 0;  // of these
    std::uint64_t watched = 0;   // of these, as it has been told
    std::uint64_t taken = 0;     // values from there that count as received here
    std::uint64_t expected = 0;  // from there, as this rank has been told: it waits for them
    bool over = false;           // it takes no more
    bool drops = false;          // and will not ask
  };
  struct outgoing {
    step_state* step = nullptr;
    const stored_key* key = nullptr;
    link* to = nullptr;
    std::uint64_t next = 0;  // number of the value sent next
    std::deque<held, progress::pool_allocator<held>> values;
    std::vector<parked> requests;
  };
  enum class slot_kind : std::uint8_t { asked, withdrawing, coming, here, offered, refused };
  struct slot {
    slot_kind kind = slot_kind::asked;
    std::uint64_t id = 0;
    packet_ptr value;
    std::uint64_t type = 0;  // offered
    std::uint64_t size = 0;
    bool dead = false;
    std::exception_ptr why;  // refused
  };
  struct incoming {
    step_state* step = nullptr;
    const stored_key* key = nullptr;
    link* from = nullptr;
    std::uint64_t next = 0;          // number of the value delivered next
    std::uint64_t needed_until = 0;  // receives wait for the numbers from `next` to here
    short_map<std::uint64_t, slot> slots;
  };

  const step_id id;
  table local;  ///< of keys whose destination is this rank
  std::atomic<int> leases{0};
  std::atomic<std::int64_t> last_use{0};

  // For the node.
  channel_map<outgoing> out;
  channel_map<incoming> in;
  short_map<int, link> links;
  std::uint64_t unreceived = 0;  // values sent to other ranks that take some
  receiver_list drains;
  std::atomic<bool> drain_waits{false};  ///< who empties the local table looks whether that was it
  bool ended = false;
  reason refusal = reason::aborted;  // for who asks later
  std::string category;
  std::int64_t code = 0;
  std::string text;
  std::vector<std::pair<owned_key, packet_ptr>> deferred;
};

/// Large bytes between two ranks, to be moved by who drives the node.
struct transfer {
  int peer;
  int tag;
  bool incoming;
  std::byte* into;
  const std::byte* from;
  std::uint64_t size;
  std::uint64_t id;  ///< of the request, for `transferred`
};

/// Each key of a step numbers its values. A value goes to its destination at once while it is
/// small and the credit lasts, else when it is asked for. The destination asks for as many numbers
/// as receives wait, and delivers in the order of numbers; every request gets exactly one answer.
///
/// Not synchronised, but for `step_state::local`, which has a lock of its own. A template with one
/// instance, so that only who makes a rendezvous compiles it.
template <class Any = void>
class basic_node {
 public:
  explicit basic_node(const node_options& options) : options_(options) {}

  /// From now on it is `rank` of `size`: what was called before is done now.
  void open(int rank, int size, std::uint64_t incarnation);
  [[nodiscard]] bool is_open() const noexcept { return rank_ >= 0; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// What the processes of the ranks are known by; index rank.
  void know(std::vector<std::uint64_t> incarnations);
  [[nodiscard]] std::uint64_t incarnation(int rank) const noexcept {
    if (rank == rank_) return incarnation_;
    const auto index = static_cast<std::size_t>(rank);
    return rank >= 0 && index < incarnations_.size() ? incarnations_[index] : 0;
  }

  // Calls of this rank.
  /// Throws errc::step_cleaned or errc::closed.
  step_ptr step(step_id id);
  [[nodiscard]] step_ptr find(step_id id) const;
  /// The same without a reference to count.
  [[nodiscard]] step_state* look_up(step_id id) const;
  /// Keys of other destinations. Throws the step's error, errc::duplicate_key, errc::not_local.
  /// What it need not keep stays where it is.
  void send(step_state& step, const rendezvous_key& key, packet_ptr& value);
  /// A receive of any source. It ends through the receiver.
  void receive(step_state& step, const rendezvous_key& key, receiver& one);
  bool cancel(step_state& step, receiver& one, const std::exception_ptr& why);
  void drain(step_state& step, receiver& one);
  bool stop_draining(step_state& step, receiver& one, const std::exception_ptr& why);
  /// The local table has been emptied: see whether the step is drained.
  void check_drained(step_state& step);
  void abort(step_state& step, const std::exception_ptr& why);
  /// False if there was nothing. Its number is used up either way.
  bool cleanup(step_id id);
  [[nodiscard]] std::vector<step_id> steps() const;
  /// This rank sends and receives no more; what it has sent is still served.
  void close();
  [[nodiscard]] bool closing() const noexcept { return closing_; }
  /// All ranks have closed, and nothing is on its way. What is left.
  std::vector<leaked_value> finish();
  [[nodiscard]] static std::vector<leaked_value> leaks_of(const step_state& step);
  /// All have closed and been answered: nothing more needs to be said.
  void fall_silent() noexcept { silent_ = true; }
  /// That rank sends and answers no more; why, for errors.
  void lose(int peer, std::string why = {});
  /// What it has sent was no message: it is told so, and lost.
  void refuse_message(int from, const std::string& why);
  [[nodiscard]] bool is_lost(int peer) const noexcept {
    return peers_[static_cast<std::size_t>(peer)].lost;
  }
  [[nodiscard]] const std::string& why_lost(int peer) const noexcept {
    return peers_[static_cast<std::size_t>(peer)].why_lost;
  }
  /// Everything ends with `why`, of which the other ranks are told, who lose this one.
  void break_down(const std::exception_ptr& why);
  /// Requests without an answer and transfers under way.
  [[nodiscard]] bool busy() const noexcept { return !asked_.empty() || !sending_.empty(); }
  /// Without the chunks, which whoever moves the bytes counts.
  [[nodiscard]] const rendezvous_statistics& statistics() const noexcept { return statistics_; }
  /// Somebody here waits for another rank.
  [[nodiscard]] bool waits() const noexcept { return !asked_.empty() || draining_ != 0; }
  /// Calls `visit(step, key, receiver)` for each receive that waits for its value, and with a null
  /// key for who waits until the step is drained. It must not call back.
  template <class Visit>
  void for_each_waiting(Visit visit) const;

  // Messages and transfers.
  void receive(int from, std::span<const std::byte> message);
  [[nodiscard]] bool has_message(int to) const noexcept;
  /// Whether it has more than acknowledgements to say.
  [[nodiscard]] bool has_urgent(int to) const noexcept {
    return !peers_[static_cast<std::size_t>(to)].out.empty();
  }
  /// Appends the message to `out`; false if there is none.
  bool take_message(int to, std::vector<std::byte>& out);
  [[nodiscard]] bool has_transfers() const noexcept { return !transfers_.empty(); }
  [[nodiscard]] std::vector<transfer> take_transfers() { return std::exchange(transfers_, {}); }
  /// Requests whose transfers to here nobody will send: the rank, the request.
  [[nodiscard]] std::vector<std::pair<int, std::uint64_t>> take_given_up() {
    return std::exchange(given_up_, {});
  }
  /// Values that are needed no more, and whose destructors may call anything: to be destroyed
  /// without locks.
  [[nodiscard]] packet_list& dropped() noexcept { return dropped_; }
  void transferred(const transfer& what, std::error_code failed);
  /// Ranks with something to be told, in no order; some may have been told meanwhile.
  [[nodiscard]] std::vector<int>& speaking() noexcept { return speaking_; }

 private:
  using link = step_state::link;
  using outgoing = step_state::outgoing;
  using incoming = step_state::incoming;
  using slot_kind = step_state::slot_kind;
  struct debt {
    std::uint64_t values = 0;
    std::uint64_t credit = 0;
    bool over = false;  // and no more will be
    reason why = reason::closed;
  };
  struct peer_state {
    /// What is owed in that step.
    debt& owes(step_id step) {
      for (auto at = owed.rbegin(); at != owed.rend(); ++at) {
        if (at->first == step) return at->second;
        if (at - owed.rbegin() == nearby && owed.size() < many) break;
      }
      return owed.emplace_back(step, debt()).second;
    }
    static constexpr std::ptrdiff_t nearby = 8;
    static constexpr std::size_t many = 64;

    std::vector<std::byte> out;
    std::vector<std::pair<step_id, debt>> owed;  // a step may be there more than once
    std::uint64_t credit = 0;                    // that this rank has left there
    interval_set<std::uint64_t> seen;
    bool speaks = false;
    bool lost = false;
    std::string why_lost;
  };
  struct asked {
    int peer;
    step_state* step;
    incoming* channel;  // null: nobody needs the answer
    std::uint64_t number;
    step_ptr keep = nullptr;  // of the step, once it has no channel
    receiver* granted = nullptr;
    int tag = 0;
    bool dead = false;

    void forget_channel() {
      channel = nullptr;
      keep = step->shared_from_this();
    }
  };
  using request_ref = std::pair<int, std::uint64_t>;
  struct request_hash {
    std::size_t operator()(const request_ref& one) const noexcept {
      return (static_cast<std::size_t>(one.first) << 40U) ^ one.second;
    }
  };
  struct offered {
    step_ptr step;
    outgoing* channel;  // null: the step has ended
    std::uint64_t number;
    packet_ptr value;
  };

  peer_state& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void say(int to, const record& what);
  void say_broken(int to, const std::string& why);
  void speaks(int to);
  void owe(int to, step_id step, std::uint64_t values, std::uint64_t credit);
  /// A value of another rank counts as received.
  void took(step_state& step, int from, std::uint64_t credit);
  void drop(packet_ptr value);
  void watch(step_state& step, int to, link& one);
  void say_over(step_state& step, reason why);
  [[nodiscard]] std::exception_ptr lost_error(const step_state& step, int lost) const;
  outgoing& out_of(step_state& step, const hashed_key& key);
  static hashed_key hashed(const rendezvous_key& key) { return {key, key_hash()(key)}; }
  incoming& in_of(step_state& step, const hashed_key& key);
  void answer(step_state& step, outgoing& channel, int to, std::uint64_t id, std::uint64_t number,
              packet_ptr& value);
  void refuse(int to, std::uint64_t id, reason why, const step_state* step = nullptr);
  static constexpr std::size_t unknown = static_cast<std::size_t>(-1);
  /// `waits`: receives that wait for the key, if that is known.
  void deliver(incoming& channel, std::size_t waits = unknown);
  bool grant(incoming& channel, step_state::slot& offer);
  void balance(incoming& channel, std::size_t waits = unknown);
  void ask(incoming& channel, std::uint64_t number);
  void forget_incoming(step_state& step, bool keep_values);
  void forget_outgoing(step_state& step, bool keep_values);
  void end(step_state& step, const std::exception_ptr& why, bool derived);
  [[nodiscard]] std::exception_ptr error_of(int peer, const incoming& channel,
                                            const record& refusal) const;
  [[nodiscard]] std::string text_of(const step_state& step, const rendezvous_key& key) const;
  [[nodiscard]] static std::string text_of(const std::exception_ptr& why);
  [[nodiscard]] rendezvous_key key_at_destination(int from, const record& one) const noexcept;
  void forget_lost(step_state& step, int lost, const std::exception_ptr& why);
  void forget_values(step_state& step, int destination);

  void on_push(int from, const record& one);
  void on_request(int from, const record& one);
  void on_withdraw(int from, const record& one);
  void on_answer(int from, const record& one);
  void on_reply(int from, const record& one);
  void on_taken(int from, const record& one);
  void on_watch(int from, const record& one);
  void on_over(int from, const record& one);
  void on_broken(int from, const record& one);

  node_options options_;
  int rank_ = -1;
  int size_ = 0;
  std::uint64_t incarnation_ = 0;
  std::vector<std::uint64_t> incarnations_;
  std::vector<peer_state> peers_;
  pooled_map<step_id, step_ptr> steps_;
  interval_set<step_id> cleaned_;
  pooled_map<std::uint64_t, asked> asked_;  // of this rank
  std::unordered_map<request_ref, outgoing*, request_hash, std::equal_to<request_ref>,
                     progress::pool_allocator<std::pair<const request_ref, outgoing*>>>
      parked_;  // of others, without a value
  short_map<request_ref, offered> offers_;
  short_map<request_ref, packet_ptr> sending_;
  std::vector<transfer> transfers_;
  std::vector<std::pair<int, std::uint64_t>> given_up_;
  packet_list dropped_;
  std::vector<int> speaking_;
  std::vector<int> free_tags_;
  int next_tag_ = 1;
  std::vector<std::pair<step_ptr, incoming*>> without_tag_;
  std::uint64_t next_id_ = 1;
  std::size_t draining_ = 0;
  rendezvous_statistics statistics_;
  bool closing_ = false;
  bool silent_ = false;
  std::exception_ptr broken_;
};

using node = basic_node<>;

/// Whether an error only follows from another one: the first that does not is the step's.
[[nodiscard]] inline bool is_derived(const std::exception_ptr& why) noexcept {
  try {
    std::rethrow_exception(why);
  } catch (const std::system_error& problem) {
    const std::error_code code = problem.code();
    return code == errc::closed || code == errc::aborted || code == errc::step_cleaned ||
           code == errc::peer_lost || code == errc::engine_stopped ||
           code == std::errc::operation_canceled;
  } catch (...) {
    return false;
  }
}

}  // namespace cohort::meeting

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/rendezvous/detail/node.ipp>
#endif
