// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the grouped verbs.

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/detail/verbs.hpp>

#include <cstring>
#include <numeric>
#include <vector>

namespace cohort::coordination {

/// The body of the grouped verbs.
template <op_kind Kind>
struct bundle_body : submitting_body {
  using signature = void(std::exception_ptr);

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
    if (Kind != op_kind::all_reduce) require_root(of, sig, root, where);
    std::int64_t elements = 0;
    bool first = true;
    for (bundle::member& one : members.members_) {
      tensor what = one.what;
      if (Kind != op_kind::broadcast) {
        const reduction_code applied = code == reduction_code::average ? reduction_code::sum : code;
        what.operation = what.kernels->operation(applied);
        if (what.operation == MPI_OP_NULL ||
            ((sig.prescale != 1 || sig.postscale != 1) && what.kernels->scale == nullptr) ||
            (code == reduction_code::average && what.kernels->divide == nullptr)) {
          of.fail(std::make_exception_ptr(
              error(errc::invalid_argument,
                    "the reduction is not defined for the elements of '" + one.name + "'")));
        }
      }
      append_member(sig.members, {one.name, what.kernels->element, what.count});
      elements += static_cast<std::int64_t>(what.count);
      if (first) {
        of.first = what;
        sig.element = what.kernels->element;
        sig.element_size = static_cast<std::uint32_t>(what.kernels->size);
        first = false;
      } else {
        of.others.push_back(what);
      }
    }
    if (first) {
      of.fail(std::make_exception_ptr(error(errc::invalid_argument, "an empty bundle")));
    }
    sig.dimensions = protocol::shape{elements};
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why));
  }

  bundle members;
  reduction_code code;
  int root;
};

/// The members of a bundle travel as one block of bytes: how many elements of each, then these.
struct bundle_gather_body : submitting_body {
  using signature = void(std::exception_ptr, gathered_bundle);

  bundle_gather_body(const bundle& from, const call_options& options_, std::source_location where)
      : submitting_body(operation_name(std::string(from.name()), where), options_) {
    std::size_t end = from.size() * sizeof(std::uint64_t);
    for (const bundle::member& one : from.members_) end += one.what.bytes();
    mine.resize(end);
    std::size_t header = 0;
    end = from.size() * sizeof(std::uint64_t);
    for (const bundle::member& one : from.members_) {
      const std::uint64_t count = one.what.count;
      std::memcpy(mine.data() + header, &count, sizeof(count));
      header += sizeof(count);
      if (count != 0) std::memcpy(mine.data() + end, one.what.in, one.what.bytes());
      end += one.what.bytes();
      result.names_.push_back(one.name);
      result.kinds_.push_back(one.what.kernels);
    }
  }

  void describe(task& of, protocol::signature& sig, const instance&) {
    sig.kind = op_kind::all_gather;
    sig.detail = 3;
    describe_element<std::byte>(sig);
    for (std::size_t i = 0; i < result.names_.size(); ++i) {  // numbers may differ
      append_member(sig.members, {result.names_[i], result.kinds_[i]->element, 0});
    }
    if (result.names_.empty()) {
      of.fail(std::make_exception_ptr(error(errc::invalid_argument, "an empty bundle")));
    }
    of.first.in = mine.data();
    of.first.count = mine.size();
    of.first.kernels = &kernels_of<std::byte>;
    of.sizes.assign(1, static_cast<std::int64_t>(mine.size()));
    of.row_bytes = 1;
    of.context = this;
    of.make_result = [](task& self, std::span<const std::int64_t> rows) -> void* {
      auto& body = *static_cast<bundle_gather_body*>(self.context);
      body.sizes.assign(rows.begin(), rows.end());
      body.result.all_.resize(
          static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})));
      return body.result.all_.data();
    };
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    if (!why && !split()) {
      why = std::make_exception_ptr(error(errc::size_mismatch, "a block of a bundle"));
    }
    std::forward<Handler>(handler)(std::move(why), std::move(result));
  }

  [[nodiscard]] bool split() {
    const std::size_t members = result.names_.size();
    result.pieces_.assign(members, {});
    std::size_t begin = 0;
    for (const std::size_t size : sizes) {
      const std::size_t end = begin + size;
      std::size_t at = begin + members * sizeof(std::uint64_t);
      for (std::size_t i = 0; i < members; ++i) {
        std::uint64_t count = 0;
        if (size != 0) {  // a rank that has joined brings nothing
          if (at > end) return false;
          std::memcpy(&count, result.all_.data() + begin + i * sizeof(count), sizeof(count));
          if (count > (end - at) / result.kinds_[i]->size) return false;
        }
        const auto bytes = static_cast<std::size_t>(count) * result.kinds_[i]->size;
        result.pieces_[i].push_back({at, bytes});
        at += bytes;
      }
      if (size != 0 && at != end) return false;
      begin = end;
    }
    return true;
  }

  std::vector<std::byte> mine;
  std::vector<std::size_t> sizes;
  gathered_bundle result;
};

}  // namespace cohort::coordination
