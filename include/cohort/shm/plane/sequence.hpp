// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One sequence of collectives through a part of a segment. This room carries collectives
/// out: calls of a communicator enter, their results leave in the looks of the engine.

#include <cohort/comm/backend.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/shm/between/messages.hpp>
#include <cohort/shm/memory.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::shm::detail {

/// Buffers of a rank in a sequence.
inline constexpr std::size_t depth = 4;
/// Calls up to so many bytes are laid down when they begin.
inline constexpr std::size_t laid_at_once = 8 * 1024;

/// What must be equal on all ranks, as far as it has room in eight bytes.
struct call_mark {
  std::uint32_t bytes = 0;   ///< of a rank's block; of 4 GiB and more both halves together
  std::uint16_t root = 0;    ///< its lowest bits
  std::uint8_t what = 0;     ///< kind, and operation
  std::uint8_t element = 0;  ///< bytes, of a reduction

  call_mark() noexcept = default;
  call_mark(const comm::collective_call& call, std::size_t size) noexcept;
  friend bool operator==(const call_mark&, const call_mark&) = default;
  /// "root=1 here, 0 on rank 3": the first field that differs.
  [[nodiscard]] std::string difference(const call_mark& other, std::size_t rank) const;
};

/// How far a rank has come; only that rank writes it. Chunks are counted from the beginning.
struct alignas(64) progress_line {
  std::atomic<std::uint64_t> reduced;  ///< chunks of which it has reduced its share
  std::atomic<std::uint64_t> left;     ///< in which it reads nothing any more
  std::atomic<std::uint64_t> failed;   ///< not 0: its messages to other nodes have failed
};
/// Tells that a chunk lies in a buffer, and of what call; only the rank of the buffer writes it.
/// A short chunk lies here itself: then one cache line comes from the other core, not two.
struct alignas(64) chunk_line {
  static constexpr std::size_t room = 40;

  std::atomic<std::uint64_t> laid;  ///< chunks that the rank has laid, up to this one
  call_mark call;                   ///< of a chunk that is its call's first
  std::array<std::byte, room> data;
  std::uint64_t left;  ///< the rank's `left` at that moment
};
static_assert(sizeof(progress_line) == 64 && sizeof(chunk_line) == 64);
static_assert(offsetof(chunk_line, data) % 16 == 0);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A call that has ended, to be told once no lock is held.
struct ended_call {
  comm::backend_completion done;
  std::error_code error;
};

/// Collectives one after the other, each in chunks, several chunks under way. A chunk is laid down
/// by every rank in its own buffer; then, where each rank has a share to reduce, reduced; where
/// there are more nodes, the share is then summed with theirs, or sent to them; then the chunk is
/// finished, which copies the result out. Nothing here blocks or locks: `advance` does what can be
/// done now. All ranks come to the same chunks if they are given the same calls, which each rank
/// sees from the others' marks before it touches the data of a call.
class sequence {
 public:
  /// What a sequence needs of a segment.
  [[nodiscard]] static std::size_t bytes(std::size_t ranks, std::size_t chunk) noexcept {
    return (sizeof(progress_line) + depth * (sizeof(chunk_line) + chunk)) * ranks;
  }
  /// `memory` is of zeros before the first rank uses it.
  /// `is_chosen`: nobody has asked for it. Then it does not take what MPI is quicker at, nor
  /// reductions that MPI_Reduce_local would do, for outside the loop nobody may call MPI.
  /// Ranks are those of this node; `between`, which is null if there is no other, has the others.
  sequence(std::span<std::byte> memory, std::size_t rank, std::size_t ranks, std::size_t chunk,
           std::size_t whole_up_to, bool is_chosen,
           std::unique_ptr<node_messages> between = nullptr);

  /// Whether the call is one for it, by what is equal on all ranks.
  [[nodiscard]] bool takes(const comm::collective_call& call) const noexcept;
  /// `size` is that of an element, `block_size(call.type)`; `reduce` that of a reduction. Making
  /// them may take MPI's lock.
  /// If the call is small and nothing is before it, its data are laid down at once: the others have
  /// them even if this rank then blocks in something else.
  void push(const comm::collective_call& call, std::size_t size, const reducer& reduce,
            comm::backend_completion done);
  /// Whom to tell of the end of the call that was pushed last.
  void tell(comm::backend_completion done) noexcept { calls_.back().done = done; }
  /// At most one step of each kind. Returns how many; the call that ended, if any, goes to `ended`,
  /// which has room for it. `aside`: outside the looks of the engine, so only what touches nothing
  /// but buffers. Else, where there are more nodes, it calls MPI.
  unsigned advance(std::vector<ended_call>& ended, bool aside);
  /// Whether the ranks have begun different calls, and those before have ended: nothing goes on.
  [[nodiscard]] bool is_broken() const noexcept { return differs_on_ >= 0 && left_ == summed_; }
  /// Whether messages between nodes have failed, here or on another rank of this node: nothing
  /// goes on.
  [[nodiscard]] std::error_code failure() const noexcept;
  /// Nobody looks any more, after `fail`. False if MPI still has some of the messages: then this,
  /// and all memory, must stay.
  [[nodiscard]] bool leave() noexcept;
  /// What differs then.
  [[nodiscard]] std::string mismatch() const;
  /// Ends all calls with `why`; the sequence is of no use after it. Only calls from whose memory,
  /// or to it, there are messages under way end later, when MPI has none of them: `advance`, or
  /// this again.
  void fail(std::error_code why, std::vector<ended_call>& ended);
  enum class forgotten : std::uint8_t { none, here, never };
  /// The call of this operation goes on without memory and completes nothing; `never`: messages go
  /// from its memory or to it. `none`: it is not here.
  forgotten forget(const comm::request_operation& op) noexcept;
  /// Calls that somebody waits for.
  [[nodiscard]] std::size_t pending() const noexcept { return calls_.size() - first_ - forgotten_; }
  /// Of the call that comes first, if there is one.
  [[nodiscard]] std::string_view verb() const noexcept {
    return first_ == calls_.size() ? "nothing" : name_of(calls_[first_].what.kind);
  }
  /// Of what is pending, if something is: the call that comes first, and whom it waits for.
  [[nodiscard]] std::string line() const;
  [[nodiscard]] progress::pending_age& age() noexcept { return calls_[first_].age; }

 private:
  using counter = std::atomic<std::uint64_t> progress_line::*;
  struct pending_call {
    comm::collective_call what;
    comm::backend_completion done;
    std::size_t size;  // of an element
    reducer reduce;
    call_mark mark;
    std::size_t root;  // its place on this node; none of them if it is on another
    std::error_code failed;
    bool forgotten = false;
    /// Messages go from and to the caller's memory: nothing else on this node has a part in it.
    bool is_direct = false;
    progress::pending_age age = {};  // since it comes first

    /// Whether its steps call neither MPI nor the coordinator.
    [[nodiscard]] bool only_copies() const noexcept {
      return what.scattered == nullptr && (!is_reduction(what.kind) || reduce.is_plain());
    }
  };
  struct chunk_of {
    std::size_t call = 0;   // counted from the beginning
    std::size_t begin = 0;  // elements
    std::size_t count = 0;
    bool shared = false;   // each rank reduces a share, or carries it between nodes
    bool in_line = false;  // lies in the lines
    bool last = false;
  };

  /// The part of a chunk that a rank reduces: elements of it.
  struct share {
    std::size_t begin;
    std::size_t end;
  };

  /// Whether each rank has a block, and more nodes: then blocks lie in the slots of the map.
  [[nodiscard]] bool is_in_slots(op_kind kind) const noexcept {
    return between_ && (kind == op_kind::reduce_scatter || kind == op_kind::all_gather ||
                        kind == op_kind::all_to_all);
  }
  /// Into how many blocks a rank's buffer is divided.
  [[nodiscard]] std::size_t blocks(op_kind kind) const noexcept {
    if (is_in_slots(kind)) return between_->map().room(kind);
    return is_divided(kind) ? ranks_ : 1;
  }
  /// In the communicator.
  [[nodiscard]] std::size_t rank_of(std::size_t place) const {
    return between_ ? static_cast<std::size_t>(between_->map().rank_here(place)) : place;
  }
  [[nodiscard]] chunk_line& line_of(std::size_t rank, std::uint64_t chunk) const noexcept {
    return chunk_lines_[rank * depth + chunk % depth];
  }
  [[nodiscard]] std::byte* buffer(std::size_t rank, std::uint64_t chunk) const noexcept {
    if (under_way_[chunk % depth].in_line) return line_of(rank, chunk).data.data();
    return buffers_ + (rank * depth + chunk % depth) * chunk_;
  }
  [[nodiscard]] pending_call& call_of(const chunk_of& one) noexcept {
    return calls_[first_ + (one.call - ended_)];
  }
  /// Whether all ranks have laid the next chunk.
  [[nodiscard]] bool all_laid() noexcept;
  /// Whether all ranks' counter has reached a number; `known` is what the last look found.
  [[nodiscard]] bool all_reached(counter which, std::uint64_t number,
                                 std::uint64_t& known) const noexcept;
  [[nodiscard]] share share_of(std::size_t rank, const chunk_of& one,
                               std::size_t size) const noexcept;
  /// Where a rank puts the sum of its share. Of two ranks it is the other that wants it, and it
  /// gets it where it has laid its part down: so a cache line goes to and fro between two cores,
  /// and is never in the way of a second one.
  [[nodiscard]] std::byte* result_of(std::size_t rank, std::uint64_t chunk) const noexcept {
    return buffer(ranks_ == 2 && !between_ ? 1 - rank : rank, chunk);
  }
  /// Of this rank.
  [[nodiscard]] const std::byte* own_input(const comm::collective_call& what) const;
  /// Whether all ranks have begun the same call with this chunk.
  [[nodiscard]] bool all_agree(const chunk_of& one);
  /// Whether there is a call of which not all chunks have been laid.
  [[nodiscard]] bool has_to_lay() const noexcept {
    return entered_ - ended_ != calls_.size() - first_;
  }
  // These are called where there is something for them.
  bool lay(bool aside = false);
  [[nodiscard]] std::size_t chunk_room(const pending_call& call) const noexcept;
  void lay_down(const pending_call& call, const chunk_of& one, std::byte* to) const;
  void lay_slots(const pending_call& call, const chunk_of& one) const;
  bool reduce(bool aside);
  void reduce_share(pending_call& call, const chunk_of& one);
  unsigned carry();
  unsigned end_failed(std::vector<ended_call>& ended);
  [[nodiscard]] bool goes_direct(const comm::collective_call& call,
                                 std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t sum_for(const comm::collective_call& what) const;
  [[nodiscard]] node_share share_between(const chunk_of& one, std::uint64_t number);
  [[nodiscard]] node_share slots_between(const pending_call& call, const chunk_of& one,
                                         std::uint64_t number) const;
  /// The slots of this rank's rail; none if it is none.
  [[nodiscard]] share own_slots() const noexcept;
  [[nodiscard]] node_share direct_share(const pending_call& call, const chunk_of& one,
                                        std::uint64_t number) const;
  /// Of the calls that have not ended, those of which a chunk has been laid.
  [[nodiscard]] std::size_t begun() const noexcept {
    return has_failed_ ? calls_.size() - first_ : entered_ - ended_ + (begin_ != 0 ? 1 : 0);
  }
  void publish_reduced() noexcept {
    lines_[rank_].reduced.store(++reduced_, std::memory_order_release);
  }
  bool finish(std::vector<ended_call>& ended, bool aside);
  void run(pending_call& call, std::byte* out, std::size_t count);
  void copy_out(pending_call& call, const chunk_of& one, std::uint64_t number);
  void take_slots(const pending_call& call, const chunk_of& one, std::uint64_t number) const;
  /// `own`: where this rank's part is if it has not laid it down.
  void gather_sources(std::uint64_t chunk, std::size_t offset, const std::byte* own);

  std::span<progress_line> lines_;
  chunk_line* chunk_lines_;
  std::byte* buffers_;
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t chunk_;
  std::size_t whole_up_to_;
  bool is_chosen_;
  std::unique_ptr<node_messages> between_;  // null where all ranks are on this node
  std::size_t shares_;                      // the first ranks have some
  std::vector<pending_call> calls_;         // from first_ on
  std::size_t first_ = 0;
  std::size_t forgotten_ = 0;
  std::size_t ended_ = 0;    // calls, ever
  std::size_t entered_ = 0;  // calls of which all chunks are laid, ever
  std::size_t begin_ = 0;    // of the next chunk in the call that is being laid
  std::array<chunk_of, depth> under_way_;
  std::uint64_t laid_ = 0;
  std::uint64_t summed_ = 0;    // the shares of this node; the others know of `reduced_`
  std::uint64_t expected_ = 0;  // from the other nodes
  std::uint64_t sent_ = 0;      // of which messages have begun; only where there are more nodes
  std::uint64_t reduced_ = 0;
  std::uint64_t left_ = 0;
  std::uint64_t all_reduced_ = 0;
  std::uint64_t all_left_ = 0;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte> result_;
  std::vector<std::byte> scratch_;
  call_mark differs_;    // of the first rank that has begun another call
  int differs_on_ = -1;  // that rank
  bool has_failed_ = false;
};

}  // namespace cohort::shm::detail

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/shm/plane/between.ipp>
#include <cohort/shm/plane/marks.ipp>
#include <cohort/shm/plane/sequence.ipp>
#endif
