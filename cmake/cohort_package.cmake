# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# What a release consists of. The target package_source makes cohort-<version>.tar.gz of the source
# tree, without what git ignores, so it is made in a fresh clone. The target package, or cpack, makes
# a .deb and a .tar.gz of what is installed.
set(CPACK_PACKAGE_VENDOR "The cohort authors")
set(CPACK_PACKAGE_CONTACT "The cohort authors")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_VERBATIM_VARIABLES ON)

string(REGEX REPLACE "([][+.*()^$?|\\{}])" "[\\1]" root "${PROJECT_SOURCE_DIR}")
string(REGEX REPLACE "([][+.*()^$?|\\{}])" "[\\1]" binary "${PROJECT_BINARY_DIR}")
set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME "cohort-${PROJECT_VERSION}")
set(CPACK_SOURCE_IGNORE_FILES
  "^${root}/(build|[.]git|[.]cache|[.]vscode|[.]idea)(/|$)"
  "^${root}/([.]clangd|compile_commands[.]json|CMakeUserPresets[.]json)$"
  "^${binary}/" "[.]swp$" "/__pycache__/")

set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME libcohort-dev)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
  "libasio-dev (>= 1:1.22.1), mpi-default-dev | libopenmpi-dev | libmpich-dev")
if(NOT COHORT_INSTALL_COMPILED)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
endif()
include(CPack)
