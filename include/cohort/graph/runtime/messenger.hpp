// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// How the messages and large values of a rank reach the others.

#include <cohort/comm/channel.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/requests/source.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/endpoint.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::graph::runtime {

/// Messages go over one communicator with one tag, large values over its exchange, with the tag
/// that the receiver has chosen (graph L2). Nothing leaves before the communicators are made.
///
/// All that MPI tells comes by the loop, not inside looks: what it sets off runs tasks.
template <class Any>
class messenger {
 public:
  /// Hears of what has happened.
  class client {
   public:
    virtual void has_news() noexcept = 0;

   protected:
    ~client() = default;
  };

  messenger(machine::basic_endpoint<Any>& all, client& whose, int rank) noexcept
      : all_(all), client_(whose), rank_(rank) {}

  /// `owner` hears of messages, and hands them on to this.
  void open(communicator made, std::shared_ptr<comm::message_rings> rings,
            std::weak_ptr<comm::mailbox::owner> owner) {
    over_ = std::move(made);
    mailbox_ = std::make_shared<comm::mailbox>(
        over_, comm::channel_options{.send_verb = "graph_send", .receive_verb = "graph_recv"});
    mailbox_->open(std::move(owner), std::move(rings));
  }
  [[nodiscard]] bool is_open() const noexcept { return mailbox_ != nullptr; }

  /// Sends what is written, unless a message to that rank is still under way.
  void flush() {
    if (!mailbox_ || closed_) return;
    for (int to = 0; to < over_.size(); ++to) {
      if (!all_.has_message(to) || mailbox_->sending(to)) continue;
      mailbox_->send(to, packet, [&](std::vector<std::byte>& out) { all_.take_message(to, out); });
    }
  }
  /// What the first task of a turn has for others leaves at once, so that ranks work side by side;
  /// what comes after it leaves in one message at the end of the turn.
  void begin_turn() noexcept { is_first_ = true; }
  void task_ended() {
    if (is_first_ && all_.take_news()) {
      is_first_ = false;
      flush();
    }
  }
  /// Tells the others that no scope is open here, nor will be (graph X6). True if they all know it
  /// and have said the same, or are lost.
  bool leave() {
    if (!mailbox_) return lost_ranks().size() + 1 >= static_cast<std::size_t>(all_.ranks());
    bool all_have = true;
    if (told_.empty()) told_.resize(static_cast<std::size_t>(over_.size()));
    for (int to = 0; to < over_.size(); ++to) {
      if (to == rank_ || all_.is_lost(to)) continue;
      if (!told_[static_cast<std::size_t>(to)] && !mailbox_->sending(to)) {
        told_[static_cast<std::size_t>(to)] = true;
        mailbox_->send(to, leaves,
                       [&](std::vector<std::byte>& out) { wire::writer(out).put(lost_ranks()); });
      }
      all_have = all_have && told_[static_cast<std::size_t>(to)] && all_.has_left(to);
    }
    return all_have && is_quiet();
  }
  [[nodiscard]] bool is_quiet() const {
    if (!mailbox_) return true;
    for (int to = 0; to < over_.size(); ++to) {
      if (all_.has_message(to) && !all_.is_lost(to)) return false;
    }
    return transfers_.empty() && !mailbox_->sending();
  }
  /// Unless all have left, the communicators are never freed: what comes later, perhaps of a rank
  /// that is only said to be lost, would come to those to which MPI gives their number.
  void close() {
    if (std::exchange(closed_, true) || !mailbox_) return;
    mailbox_->close();
    for (int each = 0; each < over_.size(); ++each) {
      if (each != rank_ && !all_.has_left(each)) over_.state()->keep();
    }
  }
  /// The context ends: sends that MPI still works on stay with it, for their receivers may have
  /// ended too. The engine cancels the receives.
  void leave_to_mpi() {
    close();
    if (transfers_.empty()) return;
    static auto& left = *new std::vector<transfer*>;  // outlives static objects
    comm::request_source& requests = over_.state()->source;
    const comm::request_source::guard hold(requests);
    requests.leave_to_mpi(nullptr, [&](comm::request_operation& op) {
      const auto at = std::find(transfers_.begin(), transfers_.end(), &op);
      if (at == transfers_.end() || (*at)->is_receive()) return false;
      left.push_back(*at);
      return true;
    });
  }
  /// MPI has nothing of it any more, so the communicators can be freed.
  void release() noexcept {
    mailbox_ = nullptr;
    over_ = communicator();
  }

  /// Without the memory for it nothing more can come from that rank, nor go there.
  void receive_value(int from, int tag, std::size_t bytes) {
    if (all_.is_lost(from)) return;
    try {
      begin(std::make_unique<transfer>(*this, from, tag, std::vector<std::byte>(bytes)));
    } catch (const std::exception& problem) {
      lose(from, "a value of " + std::to_string(bytes) +
                     " bytes cannot be received from it: " + problem.what());
    }
  }
  void send_value(int to, int tag, machine::content_ptr what) {
    if (all_.is_lost(to)) return;
    try {
      begin(std::make_unique<transfer>(*this, to, tag, std::move(what)));
    } catch (const std::exception& problem) {
      lose(to, std::string("a value cannot be sent to it: ") + problem.what());
    }
  }

  // ---- of the mailbox ----
  void received(int from, unsigned kind, std::span<const std::byte> message) {
    if (all_.is_lost(from)) return;
    try {
      if (kind == leaves) {
        heard_leave(from, message);
      } else {
        all_.receive(from, message);
      }
    } catch (const std::system_error& bad) {
      lose(from, std::string("it has sent what is no message: ") + bad.what());
    } catch (const std::exception& problem) {
      lose(from, std::string("a message of it cannot be kept: ") + problem.what());
    }
    client_.has_news();
  }
  void sent(int to, std::error_code failed) {
    if (failed) lose(to, failed.message());
    if (failed || all_.has_message(to)) client_.has_news();
  }
  void failed(int peer, std::error_code why) {
    const std::string text =
        why == errc::invalid_argument ? "it has sent what is no message" : why.message();
    for (int each = 0; each < over_.size(); ++each) {
      if (each != rank_ && (peer < 0 || each == peer)) lose(each, text);
    }
    client_.has_news();
  }

  /// Nothing comes from that rank any more, and nothing is sent to it (graph X1).
  void lose(int peer, const std::string& why) {
    if (closed_ || all_.is_lost(peer)) return;
    log::write(log::level::error, "rank " + std::to_string(rank_) + ": graph: rank " +
                                      std::to_string(peer) + " is lost: " + why);
    all_.lost(peer, why);
    for (transfer* const one : std::vector(transfers_)) {
      if (one->peer == peer && one->cancellable) over_.state()->source.cancel(*one);
    }
    client_.has_news();
  }

 private:
  enum : unsigned { packet, leaves };  // kinds of messages
  class transfer;

  [[nodiscard]] std::vector<int> lost_ranks() const {
    std::vector<int> lost;
    for (int each = 0; each < all_.ranks(); ++each) {
      if (all_.is_lost(each)) lost.push_back(each);
    }
    return lost;
  }
  void heard_leave(int from, std::span<const std::byte> message) {
    wire::reader in(message);
    const auto lost = in.get<std::vector<int>>();
    if (!in.ok()) throw std::system_error(in.error(), "task graph");
    all_.left(from);
    for (const int each : lost) {
      const bool sound = each >= 0 && each < all_.ranks() && each != rank_;
      if (sound) lose(each, "rank " + std::to_string(from) + " has said so");
    }
  }

  void begin(std::unique_ptr<transfer> one) {
    comm::request_source& requests = over_.state()->source;
    int code = MPI_SUCCESS;
    {
      const comm::request_source::guard hold(requests);
      code = one->post(over_.state()->exchange.native(), requests);
    }
    if (code != MPI_SUCCESS) return lose(one->peer, mpi::make_error(code).message());
    transfers_.push_back(one.release());
    over_.state()->engine.started();
  }
  void ended(transfer& one) {
    std::erase(transfers_, &one);
    if (one.failed() && !all_.is_lost(one.peer)) lose(one.peer, one.error().message());
    if (one.is_receive()) {
      all_.transferred(one.peer, one.tag, std::move(one.bytes));
    } else {
      all_.sent_value(one.peer, one.tag);
    }
    client_.has_news();
  }

  machine::basic_endpoint<Any>& all_;
  client& client_;
  int rank_;
  communicator over_;
  std::shared_ptr<comm::mailbox> mailbox_;
  std::vector<transfer*> transfers_;
  std::vector<bool> told_;  // those that know that this rank leaves
  bool closed_ = false;
  bool is_first_ = false;
};

/// A large value that MPI works on.
template <class Any>
class messenger<Any>::transfer final : public comm::request_operation {
 public:
  transfer(messenger& owner, int from, int with, std::vector<std::byte> memory) noexcept
      : transfer(owner, from, with) {
    bytes = std::move(memory);
    this->request_operation::bytes = bytes.size();
    verb = "graph_recv";
    cancellable = true;
  }
  transfer(messenger& owner, int to, int with, machine::content_ptr what) noexcept
      : transfer(owner, to, with) {
    content_ = std::move(what);
    this->request_operation::bytes = content_->bytes().size();
    verb = "graph_send";
  }

  [[nodiscard]] bool is_receive() const noexcept { return !content_; }
  int post(MPI_Comm over, comm::request_source& requests) {
    MPI_Request request = MPI_REQUEST_NULL;
    const std::span<const std::byte> all = is_receive() ? bytes : content_->bytes();
    const mpi::layout what(contiguous_view(all.data(), all.size()));  // also above 2 GiB
    const int code =
        is_receive()
            ? mpi::post::irecv(what.data(), what.count(), what.type(), peer, tag, over, &request)
            : mpi::post::isend(what.data(), what.count(), what.type(), peer, tag, over, &request);
    if (code == MPI_SUCCESS) requests.add(request, *this);
    return code;
  }

  int tag;
  std::vector<std::byte> bytes;

 private:
  transfer(messenger& owner, int with, int by) noexcept
      : request_operation(&run), tag(by), owner_(owner) {
    rank = owner.rank_;
    peer = with;
  }
  static void run(operation* base, action what) {
    const std::unique_ptr<transfer> self(static_cast<transfer*>(base));
    if (what != action::destroy) self->owner_.ended(*self);
  }

  messenger& owner_;
  machine::content_ptr content_;
};

}  // namespace cohort::graph::runtime
