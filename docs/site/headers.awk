# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# headers.awk HEADER: the header as Doxygen is to read it, line by line. Its \file comment becomes the
# text of a page, below that of its layer, which is what the header of the layer's name says. The page
# says how to include the header, and has all that it declares.
NR == 1 {
  path = FILENAME
  sub(/.*include\//, "", path)
  name = path; sub(/^cohort\//, "", name)
  layer = name; sub(/[.\/].*/, "", layer)
  id = name; sub(/[.]hpp$/, "", id); gsub(/\//, "_", id)
}
!described && /\\file/ {
  described = 1
  sub(/\\file/, "")
  begin = "\\defgroup " id " " (layer ".hpp" == name ? layer : substr(name, length(layer) + 2) \
    " \\ilinebr \\ingroup " layer) " \\ilinebr "
  sub(/\/\/\//, "/// " begin)
}
# Where that comment ends.
described == 1 && !/^\/\/\// {
  described = 2
  $0 = "/// \\par Header \\ilinebr <tt>\\#include &lt;" path "&gt;</tt>"
}
# The page has what is inside its marks, which reach no further than a namespace. One of few lines has
# no comment at its end.
/^namespace .*{$/ && !/detail/ { $0 = $0 " /** \\addtogroup " id " \\ilinebr \\{ */"; opened = NR }
(/^}  \/\/ namespace / && !/detail/) || (/^}$/ && opened && NR - opened < 4) {
  $0 = "/** \\} */ }"
  opened = 0
}
# What only explains a wrong call is no form of the verb.
/^ *\/\/\/ Chosen when a call fits/ { sub(/\/\/\//, "//") }
# Doxygen 1.9 gives a friend of a class an anchor that is on no page.
/^ *friend / && !/friend (class|struct) / { sub(/friend /, "") }
# A paragraph for each promise.
/^ *\/\/\/ / {
  gsub(/\*(Requires|Completion|Cancellation|Errors|Throws|Threads|Cost|Source|Example):?\*/,
    "\\ilinebr \\ilinebr &")
}
{ print }
