// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a rank carries between the nodes for one sequence of collectives. This room carries
/// shares of vectors between nodes: shares that are reduced on their node enter, and leave as the
/// sum over all.

#include <cohort/mpi/native.hpp>
#include <cohort/shm/between/nodes.hpp>
#include <cohort/shm/memory.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::shm::detail {

/// A rank's share of a chunk, where it lies.
struct node_share {
  std::byte* data = nullptr;       ///< where the result comes to
  const std::byte* own = nullptr;  ///< what this node has of a sum; may be the same place
  std::size_t bytes = 0;
  std::size_t size = 1;            ///< of an element
  std::size_t root = SIZE_MAX;     ///< the node that has it, of a broadcast; else it is summed
  std::size_t sum_for = SIZE_MAX;  ///< the node that alone needs the sum
  reducer reduce;                  ///< of its sum; of a barrier, whose data are nothing, none
  op_kind kind = op_kind::all_reduce;
  std::size_t block = 0;  ///< where each rank has one, as in `plan_blocks`: its bytes
};

/// The messages of one rank with its counterparts on the other nodes, for several chunks at once. A
/// share is cut into pieces that go their ways apart from each other, in messages so short that
/// libraries send them without asking first, which on a busy machine takes longer than the data.
/// Calls MPI: who calls it may, and holds mpi::lock. Data are sent from where they lie, which must
/// stay until the share has arrived, or for ever: see `leave`.
class node_messages {
 public:
  /// Tags that one needs for `chunks`.
  [[nodiscard]] static int tags(std::size_t chunks) noexcept {
    return static_cast<int>(chunks * most_pieces);
  }
  /// No other message on `over` has one of the tags from `first_tag` on. `share`: the most bytes of
  /// one.
  node_messages(std::shared_ptr<const node_map> map, MPI_Comm over, int first_tag,
                std::size_t chunks, std::size_t share);

  [[nodiscard]] const node_map& map() const noexcept { return *map_; }
  /// The next chunk of `slot`, of which nothing is under way: what comes first finds its place.
  void expect(std::size_t slot, const node_share& share);
  /// This node has the sum of its share, or what the root has.
  void begin(std::size_t slot);
  /// Goes on with what has arrived. Returns how many steps have ended.
  unsigned look();
  [[nodiscard]] bool has_arrived(std::size_t slot) const noexcept;
  /// Something did not arrive as it had to. Nothing goes on, and looks only take back what MPI has.
  [[nodiscard]] std::error_code failed() const noexcept { return failed_; }
  void fail(std::error_code why) noexcept {
    if (!failed_) failed_ = why;
  }
  /// Whether MPI still has a message: its memory must stay.
  [[nodiscard]] bool any_under_way() const noexcept {
    return std::any_of(requests_.begin(), requests_.end(),
                       [](MPI_Request each) { return each != MPI_REQUEST_NULL; });
  }
  /// Nobody looks any more: gives up what can be given up. True if MPI has nothing any more.
  bool leave() noexcept;
  /// " 3 5": the ranks whose messages it waits for.
  [[nodiscard]] std::string waits_for() const;

 private:
  static constexpr std::size_t most_pieces = 64;
  /// With what libraries put before it, less than the 64 KiB of Open MPI over TCP.
  static constexpr std::size_t least_message = 60 * 1024;

  struct piece {
    node_share share;
    std::byte* spare = nullptr;  // takes what is combined
    std::vector<node_step> steps;
    std::size_t at = 0;     // step
    unsigned open = 0;      // requests of it
    bool receives = false;  // its messages have been given to MPI
    bool sends = false;
    bool has_begun = false;
  };

  /// Leaves that of a message which is in piece `number`; `unit`: bytes of an element.
  void cut(std::size_t& begin, std::size_t& bytes, std::size_t number,
           std::size_t unit) const noexcept;
  void go_on(std::size_t index);
  void post(std::size_t index, bool outwards);
  void end_step(std::size_t index);
  void took(std::size_t request, const MPI_Status& status, int error);
  void cancel_receives() noexcept;
  [[nodiscard]] int counterpart(std::size_t node) const noexcept {
    return map_->members(node)[map_->place()];
  }

  std::shared_ptr<const node_map> map_;
  MPI_Comm over_;
  int first_tag_;
  std::size_t longest_;                // bytes of a message
  std::size_t each_;                   // pieces of a share
  std::vector<piece> pieces_;          // of all chunks
  std::vector<std::byte> spare_;       // as long as all shares
  std::vector<MPI_Request> requests_;  // two of each piece: sent, received
  std::size_t open_ = 0;
  bool is_cancelled_ = false;  // a second time crashes Open MPI 4.1
  std::error_code failed_;
};

}  // namespace cohort::shm::detail

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/shm/between/messages.ipp>
#endif
