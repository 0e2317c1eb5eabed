// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Linked into programs that are built with a sanitizer: MPI implementations unload their plugins in
// MPI_Finalize, and reports about them at exit would then name no module, so that no suppression
// could match.
extern "C" int dlclose(void*) noexcept { return 0; }
