// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Options of a coordinator and frozen plans, which are made from names and sizes: as text,
/// and in files.

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/options.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cohort {

/// Packs of these tensors, sorted by name, each as full as `fusion_buffer` allows. Tensors above
/// `fusion_threshold` are in no pack: they travel alone. The plan depends on names, sizes and these
/// two options only, so it is the same in every run and on every rank.
/// Throws errc::invalid_argument for a name that is given twice.
/// \code
/// std::vector<float> w(1000), b(10);
/// cohort::coordinator_options options;
/// options.frozen_plan = cohort::sorted_plan({{"w", sizeof(float) * w.size()}, {"b", 40}});
/// cohort::coordinator coord(world, options);
/// \endcode
[[nodiscard]] fusion_plan sorted_plan(std::vector<named_size> tensors,
                                      const coordinator_options& options = {});
/// Of the members of a bundle; the plan is for operations with their names.
[[nodiscard]] inline fusion_plan sorted_plan(const bundle& tensors,
                                             const coordinator_options& options = {}) {
  return sorted_plan(tensors.sizes(), options);
}

/// A pack per line, each name in quotes, as in `"layer1/w" "layer1/b"`. In the quotes `\"`, `\\`
/// and `\x0a` stand for a quote, a backslash and the byte of that number. Lines may begin with #.
[[nodiscard]] std::string to_text(const fusion_plan& plan);
/// Throws errc::invalid_argument that names the line and what is wrong with it: not such a text, an
/// empty or too long name, a name that is there twice.
[[nodiscard]] fusion_plan parse_plan(std::string_view text);

/// Throws std::system_error that names the file.
void save_plan(const std::string& path, const fusion_plan& plan);
/// Throws std::system_error that names the file, and what parse_plan throws; 64 MiB at most.
[[nodiscard]] fusion_plan load_plan(const std::string& path);

/// All of them, one per line: `piece=1048576`, `query_timeout=2s`, `timeline="trace.json"`, and for
/// each pack of a frozen plan `pack="layer1/w" "layer1/b"`, with the quotes of plans.
[[nodiscard]] std::string to_text(const coordinator_options& options);

/// The options of such a text, in any order, and what `describe` has printed; what is not in it
/// stays as in `others`. Lines may begin with #. Throws errc::invalid_argument that names the line:
/// an unknown option, one that is there twice, a value that is not a number in its range; and what
/// `validate` throws.
[[nodiscard]] coordinator_options parse_options(std::string_view text,
                                                coordinator_options others = {});

/// Throws std::system_error that names the file.
/// \code
/// cohort::coordinator coord(world);
/// if (world.rank() == 0) cohort::save_options("tuned.txt", coord.options());
/// co_await coord.shutdown();
/// \endcode
void save_options(const std::string& path, const coordinator_options& options);
/// Throws std::system_error that names the file, and what parse_options throws; 64 MiB at most.
[[nodiscard]] coordinator_options load_options(const std::string& path,
                                               coordinator_options others = {});

namespace coordination {

/// The options that can change while a coordinator runs, one per line.
[[nodiscard]] std::string tuned_text(const coordinator_options& options);
/// The same as a file, below a comment of one line; whole or not at all, also for who reads it
/// meanwhile. Throws std::system_error that names the file.
void save_tuned(const std::string& path, const coordinator_options& options,
                std::string_view comment);

}  // namespace coordination

}  // namespace cohort

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/coordinator/detail/options_text.ipp>
#endif
