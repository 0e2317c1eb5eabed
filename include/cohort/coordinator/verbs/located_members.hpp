// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Members of bundles in device memory.

#include <cohort/coordinator/bundle.hpp>
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
      if (index++ == 0) {
        of.first = what;
      } else {
        of.others.push_back(what);
      }
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
    (member == 0 ? of.first : of.others[member - 1]).out = const_cast<void*>(made.data);
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

}  // namespace cohort::coordination
