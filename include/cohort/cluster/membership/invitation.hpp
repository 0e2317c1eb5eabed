// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How rank 0 of a running job gathers the other ranks before they become its workers, and
/// the communicators that they have then.
///
/// Rank 0 invites every rank; a rank that serves accepts. When all have, rank 0 says begin, else it
/// withdraws. Each message carries the number of the attempt. So a rank that comes too late finds
/// both the invitation and its withdrawal, and can be invited again. The messages use the job's
/// communicator, with the highest tag there is.

#include <cohort/cluster/event.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/link/handshake.hpp>
#include <cohort/comm/channel.hpp>
#include <cohort/comm/creation.hpp>
#include <cohort/comm/make_communicator.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ranks.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/core/wire_std.hpp>
#include <cohort/mpi/comm.hpp>
#include <cohort/progress/deadline.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster {

struct invitation {
  enum class kind : std::uint8_t { invite = 1, accept, begin, withdraw };
  kind what{};
  std::uint64_t attempt = 0;
  bool over_mpi = false;  ///< how control messages travel
  bool capture = false;   ///< stdout and stderr go to the manager
  launch_token token{};
  std::string addresses;  ///< of the manager, where TCP is used
  std::string reason;     ///< of a withdrawal
};

namespace detail {

inline constexpr std::size_t invitation_limit = 16384;  // bytes

/// The messages of one adopt or serve. It takes one at a time: what has come after the last one
/// that was wanted stays with MPI, for who calls them next. One thread runs the loop meanwhile.
template <class Any>
class invitations final : public comm::mailbox::owner {
 public:
  explicit invitations(const communicator& world)
      : changed_(world.get_executor().context()),
        messages_(std::make_shared<comm::mailbox>(
            world, comm::channel_options{.fragment = invitation_limit,
                                         .longest = invitation_limit,
                                         .tag = world.state()->max_tag,
                                         .one_by_one = true})) {}
  invitations(const invitations&) = delete;
  ~invitations() { messages_->close(); }

  [[nodiscard]] static std::shared_ptr<invitations> open(const communicator& world) {
    auto made = std::make_shared<invitations>(world);
    made->messages_->open(made);
    return made;
  }
  /// Does not wait; the message is small enough to leave at once.
  void send(int rank, invitation what) {
    if (what.reason.size() > 1024) what.reason.resize(1024);
    messages_->send_at_once(rank, 0, wire::encode(what));
  }
  /// The next message, and who has sent it.
  asio::awaitable<std::pair<int, invitation>> next() {
    if (!has_come_) messages_->resume();
    while (!has_come_ && !failed_) co_await changed_.wait();
    if (failed_) std::rethrow_exception(failed_);
    has_come_ = false;
    co_return std::move(last_);
  }

 private:
  void received(int from, unsigned, std::span<const std::byte> message) override {
    last_ = {from, {}};
    wire::reader in(message);
    in.get(last_.second);
    if (!in.ok()) return failed(from, errc::invalid_argument);
    has_come_ = true;
    changed_.notify();
  }
  void sent(int, std::error_code) override {}
  void failed(int peer, std::error_code why) override {
    failed_ = std::make_exception_ptr(
        peer < 0
            ? error(why, "adopt, serve")
            : error(why, "adopt, serve: rank " + std::to_string(peer) + " has sent no invitation"));
    changed_.notify();
  }

  basic_event<Any> changed_;
  std::shared_ptr<comm::mailbox> messages_;
  std::pair<int, invitation> last_;
  bool has_come_ = false;  // and nobody has taken it
  std::exception_ptr failed_;
};

/// Ranks come to it when rank 0 says so: it has no place among the creations and the operations
/// that the program begins on the same communicator.
struct invited_dup : comm::make_communicator_body<comm::make_dup> {
  static constexpr const char* name = "adopt";
  static constexpr bool unnumbered = true;
};

}  // namespace detail

/// The communicators of an adopted job.
struct adopted_communicators {
  communicator control;
  communicator everyone;
  communicator workers;  ///< empty in rank 0
};

/// Makes them, on all ranks, when all have come: the first of the job's, the others of that, which
/// nobody else has.
template <class Any = void>
asio::awaitable<adopted_communicators> make_communicators(communicator world) {
  detail::invited_dup first{{world, comm::make_dup{}, comm::invited_creation_tag}};
  adopted_communicators made;
  made.control = co_await comm::initiate(world, std::move(first), awaiting<Any>);
  made.everyone = co_await made.control.dup(awaiting<Any>);
  made.workers = co_await made.control.split(world.rank() == 0 ? -1 : 0, 0, awaiting<Any>);
  co_return made;
}

/// Rank 0: invites all others and waits until they have accepted. Throws
/// error(errc::deadline_exceeded), which names those that have not. When it has completed, the
/// coroutine is not cancelled until it says `throw_if_cancelled(true)`.
template <class Any = void>
asio::awaitable<void> gather_workers(communicator world, invitation what,
                                     std::chrono::steady_clock::time_point limit) {
  static std::atomic<std::uint64_t> attempts{0};
  what.attempt = ++attempts;
  const auto messages = detail::invitations<Any>::open(world);
  const auto send_all = [&](invitation::kind kind, const std::string& reason) {
    what.what = kind;
    what.reason = reason;
    for (int rank = 1; rank < world.size(); ++rank) messages->send(rank, what);
  };
  send_all(invitation::kind::invite, {});
  std::vector<bool> here(static_cast<std::size_t>(world.size()));
  here[0] = true;
  const auto missing = [&] { return std::find(here.begin(), here.end(), false) != here.end(); };
  std::exception_ptr failed;
  std::string reason;
  try {
    while (missing()) {
      auto receiving = messages->next();
      const auto left = limit - std::chrono::steady_clock::now();
      const std::pair<int, invitation> said = co_await with_deadline(std::move(receiving), left);
      if (said.second.what == invitation::kind::accept && said.second.attempt == what.attempt) {
        here[static_cast<std::size_t>(said.first)] = true;
      }
    }
  } catch (const deadline_error&) {
    reason = "adopt: the time is over; have not called serve:";
    for (std::size_t rank = 0; rank < here.size(); ++rank) {
      if (!here[rank]) reason += " " + std::to_string(rank);
    }
    failed = std::make_exception_ptr(error(errc::deadline_exceeded, reason));
  } catch (...) {
    failed = std::current_exception();
    reason = "adopt was cancelled or has failed";
  }
  // From here on all make communicators together: whoever is cancelled in between goes through with
  // it.
  const auto state = co_await asio::this_coro::cancellation_state;
  if (!failed && state.cancelled() != asio::cancellation_type::none) {
    reason = "adopt was cancelled";
    failed = std::make_exception_ptr(std::system_error(asio::error::operation_aborted));
  }
  if (failed) {
    send_all(invitation::kind::withdraw, reason);
    std::rethrow_exception(failed);
  }
  co_await asio::this_coro::throw_if_cancelled(false);  // the caller ends that
  send_all(invitation::kind::begin, {});
}

/// The others: waits for an invitation that comes true. Throws error(errc::refused) if it is
/// withdrawn, with the reason.
template <class Any = void>
asio::awaitable<invitation> accept_invitation(communicator world) {
  invitation current;
  const auto messages = detail::invitations<Any>::open(world);
  for (;;) {
    std::pair<int, invitation> said = co_await messages->next();
    invitation& next = said.second;
    if (next.what == invitation::kind::invite) {
      current = std::move(next);
      invitation answer;
      answer.what = invitation::kind::accept;
      answer.attempt = current.attempt;
      messages->send(0, std::move(answer));
    } else if (next.attempt == current.attempt && next.what == invitation::kind::begin) {
      co_return current;
    } else if (next.attempt == current.attempt && next.what == invitation::kind::withdraw) {
      throw error(errc::refused, "serve: rank 0 has withdrawn: " + next.reason);
    }
  }
}

/// Makes a communicator of these ranks of `control`, on which there is no collective; other ranks
/// need not take part, as they may be stuck. Collective over the members, which are all on their
/// way here. Blocks until they have come.
///
/// `old`, the one that it is for, is left to MPI for good: messages of a collective that is stuck
/// may be on their way in it, and must not meet another communicator of the same number.
template <class Any = void>
[[nodiscard]] communicator renew(const communicator& old, const communicator& control,
                                 const std::vector<std::int32_t>& members, int round) {
  if (old) old.state()->keep();
  const mpi::comm_ref parent = control.state()->data.borrow();
  const mpi::group chosen = parent.group().include(ranks(members));
  // It takes no turn among creations (comm/creation.hpp): see docs/design/communicators.md.
  // Tags differ so that no two that follow each other are alike, and none is that of the transport,
  // which keeps a receive from any rank posted: Open MPI 4.1 hangs in a creation with its tag.
  constexpr int tags = 1000;
  mpi::comm data = parent.create(chosen, 1 + round % tags);
  mpi::comm exchange = data.dup();
  return communicator::adopt(control, std::move(data), std::move(exchange));
}

}  // namespace cohort::cluster
