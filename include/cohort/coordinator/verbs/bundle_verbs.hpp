// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the grouped reductions and broadcasts.

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/verbs/named_argument.hpp>
#include <cohort/coordinator/verbs/verbs.hpp>

#include <vector>

namespace cohort::coordination {

/// The members of a bundle in device memory, each an own tensor of the operation, and what is made
/// of each.
struct located_members {
  /// The owners are beside the buffers, which may be gone when memory is made.
  located_members(const bundle& members, gathered_bundle& to) : from(members) {
    try {
      for (const bundle_access::member& one : bundle_access::members(from)) {
        to.add(one.name, *one.what.kernels);
        to.located_.push_back(one.make_result(one.object));
      }
    } catch (...) {
      why = std::current_exception();
    }
  }

  /// What is read. The outputs are set where they are known.
  void describe_inputs(task& of) const {
    if (why) of.fail(why);
    std::size_t index = 0;
    for (const bundle_access::member& one : bundle_access::members(from)) {
      of.use_device().buffers.push_back(one.on_device);
      tensor what = one.what;
      what.out = nullptr;
      of.put(index++, what);
    }
  }
  /// Memory for what comes of a member: `counts` elements of each rank.
  void make(task& of, gathered_bundle& to, std::size_t member,
            std::span<const std::size_t> counts) const {
    if (why) std::rethrow_exception(why);
    const std::size_t size = to.kinds_[member]->size;
    std::size_t all = 0;
    for (const std::size_t count : counts) {
      to.put(member, all * size, count * size);
      all += count;
    }
    comm::device_buffer made = to.located_[member]->make(all, of.use_device().results);
    of[member].out = const_cast<void*>(made.data);
    of.use_device().buffers.push_back(std::move(made));
  }
  /// Where `count(member)` elements come from each of `ranks`; fails the operation where the device
  /// has no memory.
  template <class Count>
  void make_all(task& of, gathered_bundle& to, std::size_t ranks, Count count) const {
    try {
      const auto& members = bundle_access::members(from);
      for (std::size_t i = 0; i < members.size(); ++i) {
        const std::vector<std::size_t> counts(ranks, count(members[i].what.count));
        make(of, to, i, counts);
      }
    } catch (...) {
      of.fail(std::current_exception());
    }
  }
  /// `rows`: bytes of each member, of one rank after the other.
  void* gather(task& of, gathered_bundle& to, std::span<const std::int64_t> rows) const {
    const std::size_t members = to.kinds_.size();
    for (std::size_t i = 0; i < members; ++i) {
      std::vector<std::size_t> counts;
      for (std::size_t at = i; at < rows.size(); at += members) {
        counts.push_back(static_cast<std::size_t>(rows[at]) / to.kinds_[i]->size);
      }
      make(of, to, i, counts);
    }
    return of.first.out;
  }

  bundle from;
  std::exception_ptr why;
};

/// The body of the grouped verbs.
template <op_kind Kind>
struct bundle_body : submitting_body {
  bundle_body(bundle members_, const call_options& options_, reduction_code code_, int root_,
              std::source_location where)
      : submitting_body(operation_name(std::string(members_.name()), where), options_),
        members(std::move(members_)),
        code(code_),
        root(root_) {}

  void describe(task& of, protocol::signature& sig, const instance& where) {
    sig.kind = Kind;
    sig.reduction = static_cast<std::uint32_t>(code);
    sig.flags |= protocol::signature_flag::alone;
    if (code == reduction_code::average && !where.options().divide_by_active) {
      sig.flags |= protocol::signature_flag::divide_by_all;
    }
    if (Kind == op_kind::reduce || Kind == op_kind::broadcast) require_root(of, sig, root, where);
    std::int64_t elements = 0;
    std::size_t index = 0;
    for (const bundle_access::member& one : bundle_access::members(members)) {
      tensor what = one.what;
      if (Kind != op_kind::broadcast) {
        const reduction_code applied = code == reduction_code::average ? reduction_code::sum : code;
        what.operation = what.kernels->operation(applied);
        const bool is_defined = code == reduction_code::adasum ? what.kernels->adasum != nullptr
                                                               : what.operation != MPI_OP_NULL;
        if (!is_defined ||
            ((sig.prescale != 1 || sig.postscale != 1) && what.kernels->scale == nullptr) ||
            (code == reduction_code::average && what.kernels->divide == nullptr)) {
          of.fail(errc::invalid_argument,
                  "the reduction is not defined for the elements of '" + one.name + "'");
        }
      }
      if (one.is_located()) of.use_device().buffers.push_back(one.on_device);
      append_member(sig.members, {one.name, what.kernels->element, what.count});
      elements += static_cast<std::int64_t>(what.count);
      of.put(index++, what);
    }
    if (index == 0) {
      of.fail(errc::invalid_argument, "an empty bundle");
    } else {
      sig.element = of.first.kernels->element;
      sig.element_size = static_cast<std::uint32_t>(of.first.kernels->size);
    }
    sig.dimensions = protocol::shape{elements};
  }

  bundle members;
  reduction_code code;
  int root;
};

/// Each member is reduced, and each rank gets its part of each.
struct bundle_reduce_scatter_body : bundle_body<op_kind::reduce_scatter> {
  using signature = void(std::exception_ptr, gathered_bundle);

  bundle_reduce_scatter_body(bundle members_, const call_options& options_, reduction_code code_,
                             std::source_location where)
      : bundle_body(std::move(members_), options_, code_, -1, where) {}

  void describe(task& of, coordination::signature& sig, const instance& where) {
    bundle_body::describe(of, sig, where);
    if (bundle_access::on_device(members)) {
      const located_members all(members, result);
      if (all.why) of.fail(all.why);
      all.make_all(of, result, 1,
                   [&](std::size_t count) { return part_of(count, where.rank(), where.size()); });
      return;
    }
    std::size_t end = 0;
    std::size_t index = 0;
    std::vector<std::size_t> begins;
    for (const bundle_access::member& one : bundle_access::members(members)) {
      const std::size_t bytes =
          part_of(one.what.count, where.rank(), where.size()) * one.what.kernels->size;
      result.add(one.name, *one.what.kernels);
      end = packs::aligned(end);
      result.put(index++, end, bytes);
      begins.push_back(end);
      end += bytes;
    }
    result.bytes().resize(end);
    for (std::size_t i = 0; i < begins.size(); ++i) {
      of[i].out = result.bytes().data() + begins[i];
    }
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why), std::move(result));
  }

  gathered_bundle result;
};

}  // namespace cohort::coordination
