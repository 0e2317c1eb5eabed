// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Operations on the host that are never packed: those that are posted as one, and all_gather
/// and all_to_all, whose sizes ranks tell each other first [protocol Z1].

#include <cohort/comm/creation.hpp>
#include <cohort/coordinator/data/packed_calls.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace cohort::coordination {

/// The tag of messages between two ranks. One is enough, for they are posted in the order of the
/// log. Messages that an exchange of much data consists of have the tag 0.
inline constexpr int message_tag = 1;

/// Bytes as MPI counts them: what an int cannot count is one element of a derived type.
[[nodiscard]] inline mpi::layout layout_of(const void* data, std::size_t bytes) {
  return mpi::layout(buffer_view<const std::byte>(static_cast<const std::byte*>(data), bytes),
                     mpi::large_count::fold);
}

/// The only task of an execution enters; requests of MPI leave, on the memory of its caller or on a
/// copy that is scaled or converted.
template <class Any>
class whole_calls {
 public:
  explicit whole_calls(basic_execution<Any>& of) noexcept : of_(of) {}

  std::unique_ptr<comm::creation> creation;  ///< of a persistent group's communicator, under way

  // Kinds that are never packed.
  void post(lane& on, MPI_Comm where) {
    const task& only = *of_.tasks.front();
    const tensor& what = only.first;
    const auto ranks = static_cast<std::size_t>(of_.here->size);
    const std::size_t size = what.kernels == nullptr ? 1 : what.kernels->size;
    const bool is_root = only.root == of_.here->rank;
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    comm::collective_call given{op_kind::barrier,      nullptr, nullptr, 0, MPI_BYTE, MPI_OP_NULL,
                                std::max(only.root, 0)};
    const void* in = what.in;
    void* out = what.out;
    std::size_t bytes = what.count * size;
    switch (only.kind) {
      case op_kind::barrier:
        if (of_.give_to_backend(on, given, where)) return;
        rc = MPI_Ibarrier(where, &request);
        break;
      case op_kind::reduce: {
        if (only.tensors() > 1) return post_bundle(on, where);
        lay_scratch([&](const tensor&, const void* from, void* to) {
          in = from;
          out = to;
        });
        const MPI_Datatype type = what.kernels->type();
        if (is_root && in == out) in = MPI_IN_PLACE;
        if (what.count > mpi::max_int_count) {
          return post_reduce(on, where, what, in, out, what.count, only.root);
        }
        given.kind = only.kind;
        given.in = in;
        given.out = out;
        given.count = what.count;
        given.type = type;
        given.op = what.operation;
        if (of_.give_to_backend(on, given, where)) return;
        rc = mpi::post::ireduce(in, out, static_cast<MPI_Count>(what.count), type, what.operation,
                                only.root, where, &request);
        break;
      }
      case op_kind::reduce_scatter: {
        if (only.sizes.empty()) return post_bundle(on, where);
        // `sizes` are the elements of each rank's part.
        lay_scratch([&](const tensor&, const void* from, void* to) {
          in = from;
          out = to;
        });
        const MPI_Datatype type = what.kernels->type();
        if (what.count > mpi::max_int_count) {  // MPI libraries add the parts up in an int
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            const auto part = static_cast<std::size_t>(only.sizes[rank]);
            post_reduce(on, where, what, in, out, part, static_cast<int>(rank));
            in = static_cast<const std::byte*>(in) + part * size;
          }
          return;
        }
        const bool equal = only.sizes.front() == only.sizes.back();
        if (equal) {
          given.kind = only.kind;
          given.in = in;
          given.out = out;
          given.count = static_cast<std::size_t>(only.sizes.front());
          given.type = type;
          given.op = what.operation;
          if (of_.give_to_backend(on, given, where)) return;
          rc = mpi::post::ireduce_scatter_block(in, out, static_cast<MPI_Count>(only.sizes.front()),
                                                type, what.operation, where, &request);
        } else {
          const std::vector<std::size_t> counts(only.sizes.begin(), only.sizes.end());
          counts_.emplace(counts, std::vector<std::size_t>(counts.size()), type);
          rc = mpi::post::ireduce_scatter(in, out, *counts_, what.operation, where, &request);
        }
        break;
      }
      case op_kind::group_create:
        if (only.made != nullptr) {
          creation = std::make_unique<comm::creation>(*of_.plane_.state_, on);
          creation->begin();
          of_.plane_.state_->engine.started();
          return;
        }
        [[fallthrough]];           // where its starts are elected it needs no communicator
      case op_kind::set_add:       // made by its members; not an operation on data
      case op_kind::group_remove:  // a barrier: no start is in anybody's way
        rc = MPI_Ibarrier(where, &request);
        break;
      case op_kind::gather: {
        given.kind = only.kind;
        given.in = in;
        given.out = out;
        given.count = bytes;
        if (of_.give_to_backend(on, given, where)) return;
        const mpi::layout block = layout_of(in, bytes);
        rc = mpi::post::igather(in, block.count(), block.type(), out, block.count(), block.type(),
                                only.root, where, &request);
        break;
      }
      case op_kind::scatter: {
        bytes /= ranks;  // the signature's shape is that of the whole
        given.kind = only.kind;
        given.in = in;
        given.out = out;
        given.count = bytes;
        if (of_.give_to_backend(on, given, where)) return;
        const mpi::layout block = layout_of(in, bytes);
        rc = mpi::post::iscatter(in, block.count(), block.type(), out, block.count(), block.type(),
                                 only.root, where, &request);
        break;
      }
      case op_kind::message: {
        const mpi::layout block = layout_of(only.sends ? in : out, bytes);
        rc = only.sends ? mpi::post::isend(in, block.count(), block.type(), only.peer, message_tag,
                                           where, &request)
                        : mpi::post::irecv(out, block.count(), block.type(), only.peer, message_tag,
                                           where, &request);
        break;
      }
      default:
        throw error(errc::not_supported, "data plane");
    }
    of_.add(on, rc, request);
  }
  void finish() {
    const task& only = *of_.tasks.front();
    const bool scatters = only.kind == op_kind::reduce_scatter;
    if (!scatters && (only.kind != op_kind::reduce || only.root != of_.here->rank)) return;
    walk_scratch([&](const tensor& what, std::size_t, std::size_t out) {
      const void* const come = what.wire == nullptr ? what.out : scratch_.data() + out;
      std::size_t mine = what.count;
      if (scatters) {
        mine = only.sizes.empty()
                   ? part_of(what.count, of_.here->rank, of_.here->size)
                   : static_cast<std::size_t>(only.sizes[static_cast<std::size_t>(of_.here->rank)]);
      }
      finish_values(what.out, come, mine, what);
    });
  }
  void reset() noexcept {
    scratch_ = {};
    counts_.reset();
    creation.reset();
  }

 private:
  // A reduction to one rank of more than MPI can count, in parts. Smaller ones than need be: with
  // MPI_Ireduce of 2^31-1 bytes Open MPI 4.1 was not done after 100 s, with such parts after 30.
  void post_reduce(lane& on, MPI_Comm where, const tensor& what, const void* in, void* out,
                   std::size_t count, int root) {
    const MPI_Datatype type = what.kernels->type();
    constexpr std::size_t most = std::size_t{1} << 26U;
    std::size_t first = 0;
    do {
      const std::size_t offset = first * what.kernels->size;
      const std::size_t part = std::min(count - first, most);
      const void* from = in == MPI_IN_PLACE ? in : static_cast<const std::byte*>(in) + offset;
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = mpi::post::ireduce(from, static_cast<std::byte*>(out) + offset,
                                        static_cast<MPI_Count>(part), type, what.operation, root,
                                        where, &request);
      of_.add(on, rc, request);
      first += part;
    } while (first < count);
  }
  /// Where in `scratch_` the tensors of an operation that is not packed lie, if they are scaled or
  /// converted, and where their results, if these are converted; returns how much room that is.
  template <class Visit>
  std::size_t walk_scratch(Visit visit) const {
    const task& only = *of_.tasks.front();
    // Not empty: some MPI libraries refuse two buffers in one place.
    const auto padded = [](std::size_t bytes) {
      return packs::aligned(std::max<std::size_t>(bytes, 1));
    };
    std::size_t end = 0;
    for (std::size_t i = 0; i < only.tensors(); ++i) {
      const tensor& what = only[i];
      const std::size_t in = end;
      if (what.wire != nullptr || only.prescale != 1) end += padded(what.bytes());
      std::size_t out = in;
      if (what.wire != nullptr && only.kind == op_kind::reduce_scatter) {
        out = end;
        end += padded(part_of(what.count, of_.here->rank, of_.here->size) * what.kernels->size);
      }
      visit(what, in, out);
    }
    return end;
  }
  /// Copies what is scaled or converted; `post` gets each tensor and its buffers.
  template <class Post>
  void lay_scratch(Post post) {
    const task& only = *of_.tasks.front();
    const std::size_t room = walk_scratch([](const tensor&, std::size_t, std::size_t) {});
    if (room != 0) scratch_ = of_.plane_.fusion.take(room);
    walk_scratch([&](const tensor& what, std::size_t in, std::size_t out) {
      if (what.wire == nullptr && only.prescale == 1) return post(what, what.in, what.out);
      std::byte* const laid = scratch_.data() + in;
      lay_values(laid, what.in, what.count, what);
      post(what, static_cast<const void*>(laid),
           what.wire == nullptr ? what.out : static_cast<void*>(scratch_.data() + out));
    });
  }
  // A reduce of several tensors. Of each there is a request, also where it is empty.
  void post_bundle(lane& on, MPI_Comm where) {
    const task& only = *of_.tasks.front();
    const bool scatters = only.kind == op_kind::reduce_scatter;
    const auto ranks = static_cast<std::size_t>(of_.here->size);
    lay_scratch([&](const tensor& what, const void* in, void* out) {
      if (!scatters) {
        if (in == out && only.root == of_.here->rank) in = MPI_IN_PLACE;
        post_reduce(on, where, what, in, out, what.count, only.root);
      } else if (what.count % ranks == 0 && what.count <= mpi::max_int_count) {
        MPI_Request request = MPI_REQUEST_NULL;
        const int rc =
            mpi::post::ireduce_scatter_block(in, out, static_cast<MPI_Count>(what.count / ranks),
                                             what.kernels->type(), what.operation, where, &request);
        of_.add(on, rc, request);
      } else {  // parts of two sizes; and MPI libraries add parts up in an int
        for (int rank = 0; rank < of_.here->size; ++rank) {
          const std::size_t part = part_of(what.count, rank, of_.here->size);
          post_reduce(on, where, what, in, out, part, rank);
          in = static_cast<const std::byte*>(in) + part * what.kernels->size;
        }
      }
    });
  }

  basic_execution<Any>& of_;
  fusion_allocator::buffer scratch_;
  std::optional<mpi::blocks> counts_;
};

/// The sizes of this rank enter; those of all ranks leave, and the data.
template <class Any>
class sized_calls {
 public:
  explicit sized_calls(basic_execution<Any>& of) noexcept : of_(of) {}

  bool exchanged = false;

  void exchange(lane& on) {
    const task& only = *of_.tasks.front();
    const auto ranks = static_cast<std::size_t>(of_.here->size);
    const bool same = only.kind == op_kind::all_gather;
    of_.rows->rows.assign(same ? ranks * only.row_counts : ranks, 0);
    own_rows_ = only.sizes;
    own_rows_.resize(same ? only.row_counts : ranks);  // a joined rank brings nothing
    // If the data of one rank may not fit an int, all ranks must know. Below this bound they fit
    // everywhere.
    std::size_t mine = 0;
    for (const std::int64_t one : own_rows_) mine += static_cast<std::size_t>(one) * only.row_bytes;
    if (!mpi::has_large_counts && mine > mpi::max_int_count / ranks) {
      for (std::int64_t& one : own_rows_) one = ~one;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    const auto each = static_cast<MPI_Count>(only.row_counts);
    const int rc =
        same ? mpi::post::iallgather(own_rows_.data(), each, MPI_INT64_T, of_.rows->rows.data(),
                                     each, MPI_INT64_T, of_.here->shared, &request)
             : mpi::post::ialltoall(own_rows_.data(), 1, MPI_INT64_T, of_.rows->rows.data(), 1,
                                    MPI_INT64_T, of_.here->shared, &request);
    of_.add(on, rc, request);
  }
  void take() {
    exchanged = true;
    of_.rows->large = false;
    for (std::int64_t& one : of_.rows->rows) {
      if (one >= 0) continue;
      one = ~one;
      of_.rows->large = true;
    }
  }
  void post(lane& on, MPI_Comm where) {
    task& only = *of_.tasks.front();
    const std::vector<std::int64_t>& come = of_.rows->rows;
    void* out = only.make_result(only, come);
    std::vector<std::size_t> counts(come.size());
    std::size_t all = 0;
    for (std::size_t i = 0; i < come.size(); ++i) {
      counts[i] = static_cast<std::size_t>(come[i]) * only.row_bytes;
      all += counts[i];
    }
    of_.bytes_ = all;
    if (of_.rows->large) return post_messages(on, where, static_cast<std::byte*>(out), counts);
    received_.emplace(counts, MPI_BYTE);
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;
    if (only.kind == op_kind::all_gather) {
      const auto me = static_cast<std::size_t>(of_.here->rank);
      const MPI_Count own =
          received_->large() ? static_cast<MPI_Count>(counts[me]) : received_->counts()[me];
      rc = mpi::post::iallgatherv(only.first.in, own, received_->type(), out, *received_, where,
                                  &request);
    } else {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        counts[i] =
            i < only.sizes.size() ? static_cast<std::size_t>(only.sizes[i]) * only.row_bytes : 0;
      }
      sent_.emplace(counts, MPI_BYTE);
      rc = mpi::post::ialltoallv(only.first.in, *sent_, out, *received_, where, &request);
    }
    of_.add(on, rc, request);
  }
  void reset() noexcept {
    exchanged = false;
    own_rows_.clear();
    sent_.reset();
    received_.reset();
  }

 private:
  // Where counts and places may be too large for an int: a message for each pair of ranks.
  void post_messages(lane& on, MPI_Comm where, std::byte* out, std::span<const std::size_t> come) {
    const task& only = *of_.tasks.front();
    const bool same = only.kind == op_kind::all_gather;  // the whole for every rank
    const auto* in = static_cast<const std::byte*>(only.first.in);
    for (std::size_t i = 0; i < come.size(); ++i) {
      const mpi::layout block = layout_of(out, come[i]);
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = mpi::post::irecv(out, block.count(), block.type(), static_cast<int>(i), 0,
                                      where, &request);
      of_.add(on, rc, request);
      out += come[i];
    }
    for (std::size_t i = 0; i < come.size(); ++i) {
      const std::size_t k = same ? 0 : i;
      const std::size_t bytes =
          k < only.sizes.size() ? static_cast<std::size_t>(only.sizes[k]) * only.row_bytes : 0;
      const mpi::layout block = layout_of(in, bytes);
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = mpi::post::isend(in, block.count(), block.type(), static_cast<int>(i), 0,
                                      where, &request);
      of_.add(on, rc, request);
      if (!same && bytes != 0) in += bytes;
    }
  }

  basic_execution<Any>& of_;
  std::vector<std::int64_t> own_rows_;  // what an exchange sends
  std::optional<mpi::blocks> sent_;
  std::optional<mpi::blocks> received_;
};

}  // namespace cohort::coordination
