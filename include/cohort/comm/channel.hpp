// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Messages of bytes between ranks, for the protocols of the layers above: `channel`, whose owner
/// is called inside of looks, and `mailbox`, whose owner is called outside of them.

#include <cohort/comm/communicator_state.hpp>
#include <cohort/comm/fragments.hpp>
#include <cohort/comm/message_rings.hpp>
#include <cohort/progress/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::comm {

/// What a channel is, and what reports call it.
struct channel_options {
  const char* send_verb = "message_send";
  const char* receive_verb = "message_recv";
  /// Longest message of MPI, its first byte included; what is longer goes in several.
  std::size_t fragment = 16384;
  /// Longest message that is taken, in bytes. Without a limit a receiver keeps at most what the
  /// sender has in memory, too: ranks of one program trust one another so far.
  std::size_t longest = std::numeric_limits<std::size_t>::max();
  /// Of all its messages, where others use the communicator with other tags.
  int tag = 0;
  /// It pauses after each message, and leaves to MPI what comes then, until it is resumed.
  bool one_by_one = false;
};

/// How much has gone over a channel. A message here is one fragment.
struct channel_statistics {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_received = 0;
};

/// Carries messages of any length to other ranks, in order for each pair of ranks, over one
/// communicator on which nothing else uses its tag.
///
/// Its receives keep neither `io.run()` nor laps alive: with nothing else pending the engine sleeps
/// and the sender's doorbell wakes it. One message at a time is under way to a rank, so its owner
/// gathers what it has to send until the one before has left. A message has a kind, a number below
/// 64, which costs nothing.
///
/// ```
/// channel.open(communicator);
/// if (!channel.sending(to)) {
///   put(channel.message(to), what);       // appends its bytes
///   if (auto why = channel.send(to, kind)) lose(to, why);
/// }                                       // later: client::sent(to)
/// ```
///
/// *Threads.* Everything happens with the request source locked; who opens, sends, resumes or
/// closes outside of a look calls `engine().started()` after that. A message is received and sent
/// within looks, so it costs no turn of the loop.
/// *Cost*: a message of MPI for each fragment, and a system call for a rank that is parked or on
/// another node; no allocation once buffers have grown. Through rings in shared memory, two cache
/// lines for a short message. *Source*: `MPI_Isend`, `MPI_Irecv`.
class channel final : private look_hook {
 public:
  /// The owner of a channel. Called within looks. What one of these throws ends the operation that
  /// it is about, also a receive, and `settled` is not called for that.
  class client {
   public:
    /// The next message of that rank. Its bytes are valid until this returns.
    virtual void received(int from, unsigned kind, std::span<const std::byte> message) = 0;
    /// The message to that rank has left.
    virtual void sent(int to) = 0;
    /// That rank has sent bytes that are no message, or a message that is too long. Whatever else
    /// comes from it is dropped, and this is called again for each.
    virtual void malformed(int from, const char* what) = 0;
    /// MPI has failed the message to that rank or, with `sends` false, a receive, and nothing comes
    /// there any more. `peer` is -1 for one from any rank. Not after `close`.
    virtual void failed(int peer, bool sends, std::error_code why) = 0;
    /// MPI has given back what it had of an operation. Called last, so this may destroy the channel
    /// if `operations()` is 0.
    virtual void settled() = 0;

   protected:
    ~client() = default;
  };

  COHORT_INLINE channel(client& owner, const channel_options& options);
  COHORT_INLINE ~channel() override;

  /// Begins to receive on `over`: from each of `peers` into a buffer of its own, or, if there are
  /// none, from any rank into one. The owner keeps `over` until MPI has given back all operations.
  /// Of named peers one can fail alone, where MPI tells which has. Throws `std::system_error` if
  /// MPI refuses a receive. Nothing happens after `close`. With `rings`, of all ranks of `over`,
  /// everything goes through these.
  void open(const communicator& over, std::span<const int> peers = {},
            std::shared_ptr<message_rings> rings = nullptr);

  /// Whether a message to that rank is under way. Until it has left, the next one has to wait.
  [[nodiscard]] bool sending(int to) const noexcept {
    const peer* const one = peers_[index(to)].get();
    return one != nullptr && one->sending;
  }
  [[nodiscard]] bool sending() const noexcept { return under_way_ != 0; }
  /// Whether MPI, or a ring, has the whole of it by now.
  [[nodiscard]] bool all_posted(int to) const noexcept {
    const peer* const one = peers_[index(to)].get();
    return one == nullptr || (one->out.all_taken() && one->fragment.empty());
  }
  /// The next message to that rank, for its bytes to be appended.
  /// *Requires* `open` before, as all that names a rank does, and `!sending(to)`.
  [[nodiscard]] std::vector<std::byte>& message(int to);
  /// Sends what was appended. It may have left on return; else `client::sent` tells. Returns what
  /// MPI has refused it with.
  [[nodiscard]] std::error_code send(int to, unsigned kind = 0);
  /// A message of at most one fragment. It does not wait for the one that is under way, may arrive
  /// before the rest of that, and may be sent after `give_up`. `client::sent` does not tell of it.
  std::error_code send_at_once(int to, unsigned kind, std::span<const std::byte> message);

  /// Whether the owner waits for a message: the engine then looks for it. Else it may sleep.
  void expect(bool yes) noexcept;
  /// Within `received`: the next message waits for `resume`, so that what this one sets off comes
  /// first. Of ranks that are named one by one each may still send one.
  void pause() noexcept { paused_ = true; }
  void resume();
  [[nodiscard]] bool paused() const noexcept { return paused_; }

  /// The rest of the messages under way is not sent any more.
  void give_up() noexcept { gives_up_ = true; }
  /// Ends the receives. `client::settled` tells when MPI has given them back, unless
  /// `operations()` is 0 on return.
  void close();
  /// What MPI has of it: receives, and messages that have not left.
  [[nodiscard]] std::size_t operations() const noexcept { return operations_; }
  /// Whether it receives: from `open` until `close`, or until MPI has failed the last receive.
  [[nodiscard]] bool receives() const noexcept { return !receives_.empty(); }

  [[nodiscard]] const channel_statistics& statistics() const noexcept { return statistics_; }
  /// Fragments so far to that rank.
  [[nodiscard]] std::uint64_t messages_to(int to) const noexcept {
    const peer* const one = peers_[index(to)].get();
    return one == nullptr ? 0 : one->messages;
  }

 private:
  class control_operation;
  struct peer {
    explicit peer(std::size_t longest) noexcept : in(longest) {}
    outgoing_message out;
    message_assembly in;
    std::uint64_t messages = 0;  // fragments, to it
    bool sending = false;
    // With rings: what there was no room for.
    std::span<const std::byte> fragment;             // of the message under way
    std::vector<std::vector<std::byte>> in_between;  // messages
    bool waits = false;                              // one of these is there
  };

  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }
  [[nodiscard]] peer& at(int rank);
  COHORT_INLINE std::size_t at_look() override;
  COHORT_INLINE std::size_t at_every_look() override;
  void take(int from, std::span<const std::byte> fragment);
  void count_fragment(peer& to, std::size_t bytes) noexcept;
  bool fill_ring(int to);
  int post_receive(control_operation& op);
  bool received(control_operation& op);
  int post_fragment(int to, std::span<const std::byte> fragment, MPI_Request& request);
  void has_left(int to) noexcept;
  bool sent(control_operation& op);
  bool fail(control_operation& op, int code);
  void failed(control_operation& op);
  void wake_receiver(int to) const noexcept;
  void forget(control_operation& op) noexcept;
  void let_go() noexcept;

  client& client_;
  const channel_options options_;
  communicator_state* over_ = nullptr;  // null before it is opened, and after its end
  int rank_ = -1;
  std::vector<std::unique_ptr<peer>> peers_;  // by rank, made when they are first needed
  std::vector<control_operation*> receives_;  // with rings one, which receives nothing
  std::shared_ptr<message_rings> rings_;
  std::vector<int> from_;                     // whose rings are looked at
  std::unique_ptr<control_operation> spare_;  // for the next send that does not leave at once
  std::size_t operations_ = 0;
  std::size_t under_way_ = 0;  // messages
  bool paused_ = false;
  bool gives_up_ = false;
  bool closing_ = false;
  progress::engine::clock::time_point rung_{};
  channel_statistics statistics_;
};

/// For owners whose code must not run inside looks, with locks held: what it calls may block, free
/// what the look works on, or throw. All that one look has found is handed on at once, in order, by
/// the lap that the look belongs to or by the loop.
///
/// It keeps its communicator, and itself, until MPI has given back all that it had. Must be owned
/// by a shared_ptr.
///
/// *Threads.* Any may call it, but not inside looks; calls to the owner follow one another.
/// *Cost*: that of the channel, and a copy of what has come.
class mailbox final : public std::enable_shared_from_this<mailbox>, private channel::client {
 public:
  /// Hears of what happens, while it lives. What it throws leaves through `io.run()`, and the rest
  /// is handed on after that.
  class owner {
   public:
    virtual void received(int from, unsigned kind, std::span<const std::byte> message) = 0;
    /// What was sent to that rank has left, or not. For each `send`.
    virtual void sent(int to, std::error_code failed) = 0;
    /// Nothing more comes from that rank, or from any if it is -1. errc::invalid_argument: it has
    /// sent what is no message.
    virtual void failed(int peer, std::error_code why) = 0;
    /// MPI has given back what it had of an operation.
    virtual void settled() {}

   protected:
    ~owner() = default;
  };

  mailbox(communicator over, const channel_options& options)
      : over_(std::move(over)), channel_(*this, options) {}

  /// Begins to receive, from any rank of the communicator. Throws cohort::error where MPI cannot be
  /// called.
  COHORT_INLINE void open(std::weak_ptr<owner> whose,
                          std::shared_ptr<message_rings> rings = nullptr);
  [[nodiscard]] bool sending(int to) const {
    const request_source::guard hold(over_.state()->source);
    return channel_.sending(to);
  }
  [[nodiscard]] bool sending() const {
    const request_source::guard hold(over_.state()->source);
    return channel_.sending();
  }
  [[nodiscard]] bool receives() const {
    const request_source::guard hold(over_.state()->source);
    return channel_.receives();
  }
  /// Sends what `write(std::vector<std::byte>&)` appends.
  /// *Requires* `open` before, and `!sending(to)`.
  template <class Write>
  void send(int to, unsigned kind, Write write) {
    {
      const request_source::guard hold(over_.state()->source);
      std::error_code why = usable();
      if (!why) {
        write(channel_.message(to));
        why = channel_.send(to, kind);
      }
      if (why || !channel_.sending(to)) note({happening::sent, to, 0, 0, why});
      keep();
    }
    engine().started();
  }
  /// See channel::send_at_once.
  COHORT_INLINE void send_at_once(int to, unsigned kind, std::span<const std::byte> message);
  /// With `one_by_one`: the next message may come.
  COHORT_INLINE void resume();
  /// Ends the receives. After the end of the context MPI has given them back already, or keeps
  /// them.
  COHORT_INLINE void close();

 private:
  struct happening {
    enum what_kind : std::uint8_t { nothing, message, sent, failed } what = nothing;
    int rank = -1;
    unsigned kind = 0;
    std::size_t bytes = 0;  // of the message
    std::error_code why;
  };
  class delivery;

  [[nodiscard]] progress::engine& engine() const { return over_.state()->engine; }
  COHORT_INLINE void received(int from, unsigned kind, std::span<const std::byte> bytes) override;
  COHORT_INLINE void sent(int to) override;
  COHORT_INLINE void malformed(int from, const char* what) override;
  COHORT_INLINE void failed(int peer, bool sends, std::error_code why) override;
  COHORT_INLINE void settled() override;
  [[nodiscard]] std::error_code usable() const noexcept;
  void keep();
  void note(const happening& what);
  void deliver();
  void left_over();
  void hand_on(owner& whose, const happening& what);

  communicator over_;
  std::weak_ptr<owner> owner_;
  std::shared_ptr<mailbox> self_;  // while MPI has something

  // With the guard held.
  channel channel_;
  std::vector<happening> happened_;
  std::vector<std::byte> bytes_;  // of the messages among these
  bool delivers_ = false;

  // Of the delivery that is under way.
  std::vector<happening> handed_;
  std::vector<std::byte> handed_bytes_;
  std::size_t next_ = 0;   // of these
  std::size_t begin_ = 0;  // of its bytes
};

}  // namespace cohort::comm

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/comm/channel.ipp>
#include <cohort/comm/mailbox.ipp>
#endif
