// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The bodies of reduce_scatter and reduce_scatter_v.

#include <cohort/collectives/block_list.hpp>
#include <cohort/collectives/bodies/reduction.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <optional>

namespace cohort::collectives {
namespace detail {

/// Whether ranks get different numbers of elements.
enum class block_sizes : bool { equal, uneven };

/// Equal blocks, or one count per rank.
template <block_sizes Sizes>
struct scattered_blocks {
  static constexpr bool uneven = Sizes == block_sizes::uneven;
  static constexpr const char* name = uneven ? "reduce_scatter_v" : "reduce_scatter";

  scattered_blocks(place where_, std::size_t equal_) : where(where_), equal(equal_) {}
  template <integer_list Counts>
  scattered_blocks(place where_, const Counts& counts) : where(where_), list(counts) {}

  [[nodiscard]] bool fit(std::size_t in_count) const noexcept {
    if (!uneven) return in_count % where.blocks() == 0 && in_count / where.blocks() == equal;
    return list.fits(where.blocks(), in_count) && list.total() == in_count;
  }
  [[nodiscard]] std::size_t count_of(std::size_t rank) const noexcept {
    return uneven ? list.counts()[rank] : equal;
  }
  [[nodiscard]] std::size_t first_of(std::size_t rank) const noexcept {
    return uneven ? list.displacements()[rank] : equal * rank;
  }
  [[nodiscard]] std::size_t own_count() const noexcept { return count_of(where.index()); }
  [[nodiscard]] std::size_t largest() const noexcept {
    std::size_t most = uneven ? 0 : equal;
    for (const std::size_t count : list.counts()) most = std::max(most, count);
    return most;
  }
  void explain(failure_text& text) const {
    text.with("ranks", where.ranks);
    if (uneven) text.with("blocks", list.counts().size()).with("blocks.total", list.total());
  }
  template <class T, class Op>
  [[nodiscard]] std::array<std::int64_t, 4> agreed(std::size_t in_count) const {
    auto values = agreed_values<T, Op>(in_count, 0);
    values[3] = uneven ? list.digest() : 0;
    return values;
  }

  place where;
  std::size_t equal = 0;
  block_list list;
};

/// 1. MPI's own function where one call can take the blocks. 2. Otherwise one reduction in parts to
/// each rank, which is why a result in place then appears in the rank's own block: returns whether
/// that is so.
template <class Op, class T, block_sizes Sizes>
int post_reduce_scatter(comm::poster& post, const void* in, T* out,
                        const scattered_blocks<Sizes>& blocks, std::optional<mpi::blocks>& parts,
                        bool& in_own_block) {
  const MPI_Datatype type = mpi::reduction_type_of<T>();
  const MPI_Op op = mpi::op_of<Op, T>();
  MPI_Request request = MPI_REQUEST_NULL;
  if (has_large_reductions<Op> || blocks.largest() <= mpi::max_int_count) [[likely]] {
    if constexpr (Sizes == block_sizes::equal) {
      const auto count = static_cast<MPI_Count>(blocks.equal);
      return post.add(
          mpi::post::ireduce_scatter_block(in, out, count, type, op, post.native(), &request),
          request);
    }
    // Without displacements, which a sum above 2^31 would make too large.
    const std::vector<std::size_t> nowhere(blocks.list.counts().size());
    parts.emplace(blocks.list.counts(), nowhere, type);
    return post.add(mpi::post::ireduce_scatter(in, out, *parts, op, post.native(), &request),
                    request);
  }
  const bool in_place = in == MPI_IN_PLACE;
  in_own_block = in_place;
  const T* const elements = in_place ? out : static_cast<const T*>(in);
  for (int root = 0; root < blocks.where.ranks; ++root) {
    const auto index = static_cast<std::size_t>(root);
    const T* const block = elements + blocks.first_of(index);
    const bool mine = root == blocks.where.rank;
    T* const result = in_place ? out + blocks.first_of(index) : out;
    const void* const from = mine && in_place ? MPI_IN_PLACE : block;
    const int rc =
        post_reduction<reduce_verb, Op>(post, from, mine ? result : nullptr, blocks.count_of(index),
                                        {blocks.where.rank, blocks.where.ranks, root});
    if (rc != MPI_SUCCESS) return rc;
  }
  return MPI_SUCCESS;
}

}  // namespace detail

template <class In, class Out, class Op, detail::block_sizes Sizes>
struct reduce_scatter_body : comm::body_over<std::tuple<comm::argument<In>, comm::argument<Out>>> {
  using value_type = typename comm::argument<Out>::value_type;
  static constexpr const char* name = detail::scattered_blocks<Sizes>::name;
  static constexpr bool works_on_host = detail::works_on_host<Op>;

  reduce_scatter_body(auto& in_, auto& out_, detail::place where)
      : in(in_), out(out_), blocks(where, out.count()) {}
  template <integer_list Counts>
  reduce_scatter_body(auto& in_, auto& out_, detail::place where, const Counts& counts)
      : in(in_), out(out_), blocks(where, counts) {}

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept {
    const bool fit = blocks.fit(in.count()) && blocks.own_count() == out.count();
    return fit ? errc{} : errc::size_mismatch;
  }
  void explain(failure_text& text) const {
    text.with("in.count", in.count()).with("out.count", out.count());
    blocks.explain(text);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return in.bytes(); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return blocks.template agreed<value_type, Op>(in.count());
  }
  [[nodiscard]] comm::collective_call call()
    requires(Sizes == detail::block_sizes::equal)
  {
    return detail::reduction_call<value_type, Op>(op_kind::reduce_scatter, sent.in(in.view()),
                                                  result.out(out.view()), out.count(), 0);
  }
  int post(comm::poster& post) {
    bool moved = false;
    return detail::post_reduce_scatter<Op>(post, sent.in(in.view()), result.out(out.view()), blocks,
                                           parts, moved);
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error) {
      result.finish(out.view());
      if constexpr (is_average<Op>) apply_average(out.view(), blocks.where.ranks);
    }
    return std::tuple_cat(in.take(), out.take());
  }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("in", self.in, true, false);
    visit("out", self.out, false, true);
  }

  comm::argument<In> in;
  comm::argument<Out> out;
  detail::scattered_blocks<Sizes> blocks;
  std::optional<mpi::blocks> parts;
  detail::packed<const value_type> sent;
  detail::packed<value_type> result;
};

template <class Buffer, class Op, detail::block_sizes Sizes>
struct reduce_scatter_in_place_body : comm::body_over<std::tuple<comm::argument<Buffer>>> {
  using value_type = typename comm::argument<Buffer>::value_type;
  static constexpr const char* name = detail::scattered_blocks<Sizes>::name;
  static constexpr bool works_on_host = true;  // it moves the block

  reduce_scatter_in_place_body(auto& buffer, detail::place where)
      : data(buffer), blocks(where, data.count() / where.blocks()) {}
  template <integer_list Counts>
  reduce_scatter_in_place_body(auto& buffer, detail::place where, const Counts& counts)
      : data(buffer), blocks(where, counts) {}

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept {
    return blocks.fit(data.count()) ? errc{} : errc::size_mismatch;
  }
  void explain(failure_text& text) const {
    text.with("count", data.count());
    blocks.explain(text);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.bytes(); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const {
    return blocks.template agreed<value_type, Op>(data.count());
  }
  [[nodiscard]] comm::collective_call call()
    requires(Sizes == detail::block_sizes::equal)
  {
    return detail::reduction_call<value_type, Op>(op_kind::reduce_scatter, MPI_IN_PLACE,
                                                  elements.in(data.view()), blocks.own_count(), 0);
  }
  int post(comm::poster& post) {
    return detail::post_reduce_scatter<Op>(post, MPI_IN_PLACE, elements.in(data.view()), blocks,
                                           parts, in_own_block);
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error) {
      value_type* const here = elements.in(data.view());
      const std::size_t count = blocks.own_count();
      if (in_own_block) std::copy_n(here + blocks.first_of(blocks.where.index()), count, here);
      if constexpr (is_average<Op>) {
        apply_average(contiguous_view(here, count), blocks.where.ranks);
      }
      elements.finish(data.view());
    }
    return data.take();
  }
  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("buffer", self.data, true, true);
  }

  comm::argument<Buffer> data;
  detail::scattered_blocks<Sizes> blocks;
  std::optional<mpi::blocks> parts;
  detail::packed<value_type> elements;
  bool in_own_block = false;
};

}  // namespace cohort::collectives
