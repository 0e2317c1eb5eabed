// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What carries messages about faults between the ranks of an NCCL communicator, and who sends and
/// hears them.
///
/// The room `faults` has what ranks tell each other when something goes wrong. What has failed
/// enters it, and questions about who holds an operation up; failures of peers leave it for `life`,
/// and findings for reports.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/channel.hpp>
#include <cohort/nccl/faults/message.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/polled_source.hpp>

#include <asio/strand.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::nccl {

class issue_source;
class communicator_state;
class work;

/// What peers tell of faults through. All handles of a communicator in this process share one.
class fault_channel final : public comm::mailbox::owner,
                            public std::enable_shared_from_this<fault_channel> {
 public:
  COHORT_INLINE fault_channel(issue_source& source, const cohort::communicator& over);

  /// Adds a handle, before it listens.
  void add(const std::shared_ptr<communicator_state>& handle) { handles_.push_back(handle); }
  // Without the lock of the source, for they take MPI's.
  void listen() { messages_->open(shared_from_this()); }
  void send(int to, const fault_bytes& message);
  void close() { messages_->close(); }

  /// The numbers of messages with a rank of MPI.
  struct traffic {
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    std::optional<std::uint32_t> announced{};  ///< by its goodbye: what it has sent
  };
  // These are guarded by the source.
  std::vector<traffic> peers;  ///< empty: there have been no messages
  bool parted = false;         ///< this rank has said its goodbyes
  [[nodiscard]] traffic& with(int peer, int ranks) {
    if (peers.empty()) peers.resize(static_cast<std::size_t>(ranks));
    return peers[static_cast<std::size_t>(peer)];
  }
  /// Whether nothing is on its way to this rank, and nothing will be.
  [[nodiscard]] bool is_over(int own) const noexcept {
    for (std::size_t i = 0; i < peers.size(); ++i) {
      const traffic& each = peers[i];
      const bool all = each.announced && each.received >= *each.announced;
      if (!all && i != static_cast<std::size_t>(own)) return false;
    }
    return !peers.empty();
  }

 private:
  COHORT_INLINE void received(int from, unsigned kind, std::span<const std::byte> message) override;
  void sent(int, std::error_code) override {}
  void failed(int, std::error_code) override {}

  issue_source& source_;
  std::shared_ptr<comm::mailbox> messages_;
  std::vector<std::weak_ptr<communicator_state>> handles_;
};

/// What this rank sends to the others about faults, and receives. With the lock of the source
/// held, but for `listen` and `receive`.
///
/// A communicator of MPI is not freed while something may come over it. A rank whose communicator
/// has ended says goodbye to each of the others, with the number of its messages to that one, and
/// goes on listening until it has heard the same of all of them and all that they have sent. Where
/// that does not come, and after a failure, MPI keeps its communicator for good.
class fault_messages {
 public:
  using handle = std::shared_ptr<communicator_state>;
  static constexpr int every_peer = -1;
  /// A communicator that has left, and whose peers have not all said goodbye.
  struct parting {
    handle comm;
    std::chrono::nanoseconds left{};  ///< time for them; only that in which this rank looks counts
    std::chrono::steady_clock::time_point looked{};
  };

  explicit fault_messages(issue_source& source);

  /// Posts the receive through which peers report faults.
  void listen(const handle& which);
  /// Drops what is no message, or is about another communicator. Returns the handle for which to
  /// listen further, since this one may have ended before others of the communicator. Null: nothing
  /// more can come.
  [[nodiscard]] handle receive(const communicator_state& comm,
                               const std::optional<fault_message>& message, int from);
  /// Tells the peers that the communicator has failed.
  void notify(const handle& comm, std::error_code why, const std::string& text, bool only_this);
  /// Sends to one rank of MPI, or to `every_peer`.
  void send_to(const handle& comm, fault_message&& message, int only);
  /// Ends listening, unless another handle of the communicator is up.
  void silence(const handle& comm);
  void close(std::shared_ptr<fault_channel> which);
  /// Says the goodbyes of a communicator that has ended in order. In a lap.
  void part(const handle& comm);
  /// How many communicators wait for goodbyes, without borrowed ones.
  [[nodiscard]] std::size_t pending() const noexcept;
  void look();
  /// Waits for no more goodbyes. The caller drops what it returns without the lock.
  [[nodiscard]] std::vector<parting> let_go();

 private:
  [[nodiscard]] handle sister_up(const communicator_state& comm) const;
  [[nodiscard]] handle goes_on_parting(const communicator_state& comm, bool fails);

  static constexpr std::chrono::nanoseconds longest_advance = std::chrono::milliseconds(10);
  issue_source& source_;
  /// Calls on fault channels go through it, since they take MPI's lock and must not be made with
  /// that of the source. They keep their order, also where several threads run the loop: the last
  /// message has to leave before a channel closes.
  asio::strand<asio::io_context::executor_type> to_peers_;
  std::vector<parting> partings_;
};

/// Ranks are asked over the fault channel, because NCCL does not tell who is missing.
///
/// 1. A deadline passes over an operation, or it takes too long. This rank asks all others.
/// 2. Every rank that laps answers with its position in the order of operations.
/// 3. When all have answered, or `answer_bound` has passed, this rank says who was silent and who
///    has not started the operation. If the deadline is to abort, the ladder goes on.
///
/// With the lock of the source held.
class inquiries {
 public:
  explicit inquiries(issue_source& source) noexcept : source_(source) {}

  /// False if nobody can be asked. One question at a time for each communicator: a later deadline
  /// joins the question that is under way.
  bool ask(communicator_state& comm, const work& op, const std::string& about, std::error_code why,
           bool aborts);
  /// About what is not in the queue of a device. `report` is called in a look; at once if nobody
  /// can be asked. False: another question is under way.
  bool inquire(communicator_state& comm, std::function<void(const std::string&)> report);
  /// A deadline has passed over it: reports, and brings the communicators down by option.
  /// False: it has not entered the queue of its device. Without the lock, too.
  bool deadline_passed(work& op);
  /// Warns of what takes long. Without the lock.
  void tick(std::chrono::steady_clock::time_point now);
  /// For the report of a failure, before anything of it ends: who was where.
  [[nodiscard]] std::string pending_lines() const;
  void answer(const communicator_state& comm, std::uint64_t number, int asker);
  void note_answer(const communicator_state& comm, position_answer&& said);
  /// Questions that nothing else is pending for.
  [[nodiscard]] std::size_t pending() const noexcept;
  void look();

 private:
  [[nodiscard]] bool can_ask(const communicator_state& comm) const;
  void send_question(communicator_state& comm);
  [[nodiscard]] rank_position position_of(const communicator_state& comm);
  void conclude(communicator_state& comm);

  issue_source& source_;
  std::uint64_t numbers_ = 0;
  progress::stall_watch stalls_;
};

}  // namespace cohort::nccl

#endif
