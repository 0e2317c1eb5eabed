// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
// Deliberately empty: the targets that hold the precompiled headers need a source file.
