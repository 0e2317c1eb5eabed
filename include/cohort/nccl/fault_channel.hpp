// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What carries messages about faults between the ranks of an NCCL communicator.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/mailbox.hpp>
#include <cohort/nccl/fault_message.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

namespace cohort::nccl {

class issue_source;
class communicator_state;

/// Through which peers tell of faults, one for all handles of a communicator here.
class fault_channel final : public comm::mailbox::owner,
                            public std::enable_shared_from_this<fault_channel> {
 public:
  COHORT_INLINE fault_channel(issue_source& source, const cohort::communicator& over);

  /// Another handle. Before it listens.
  void add(const std::shared_ptr<communicator_state>& handle) { handles_.push_back(handle); }
  // Without the lock of the source, for they take MPI's.
  void listen() { messages_->open(shared_from_this()); }
  void send(int to, const fault_bytes& message);
  void close() { messages_->close(); }

  /// With a rank of MPI.
  struct traffic {
    std::uint32_t sent = 0;
    std::uint32_t received = 0;
    std::optional<std::uint32_t> announced{};  ///< by its goodbye: what it has sent
  };
  // These are guarded by the source.
  std::vector<traffic> peers;  ///< empty: there has been none
  bool parted = false;         ///< this rank has said its goodbyes
  [[nodiscard]] traffic& with(int peer, int ranks) {
    if (peers.empty()) peers.resize(static_cast<std::size_t>(ranks));
    return peers[static_cast<std::size_t>(peer)];
  }
  /// Nothing is on its way to this rank, and nothing will be.
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

}  // namespace cohort::nccl

#endif
