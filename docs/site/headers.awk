# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# headers.awk HEADER: the header as Doxygen is to read it, line by line. Its \file comment becomes
# the text of a page, which says how to include the header and has all that it declares. The page of
# collectives/all_reduce.hpp is below that of collectives.hpp.
NR == 1 {
  path = FILENAME
  sub(/.*include\//, "", path)
  name = path; sub(/^cohort\//, "", name)
  layer = name; sub(/[.\/].*/, "", layer)
  id = name; sub(/[.]hpp$/, "", id); gsub(/\//, "_", id)
}
!described && /\\file/ {
  described = 1
  title = layer
  if (layer ".hpp" != name) title = substr(name, length(layer) + 2) " \\ilinebr \\ingroup " layer
  sub(/\\file/, "\\defgroup " id " " title " \\ilinebr")
  sub(/ \\ilinebr$/, "")
}
# Where that comment ends.
described == 1 && !/^\/\/\// {
  described = 2
  $0 = "/// \\par Header \\ilinebr <tt>\\#include &lt;" path "&gt;</tt>"
}
# The page has what is inside its marks, which reach no further than a namespace. What is in a
# namespace of its own inside a header is for the library, but for the operators of reductions. A
# short namespace has no comment at its end.
/^namespace / { opened = 0 }
/^namespace (cohort|op).*[{]$/ && !/detail/ {
  $0 = $0 " /** \\addtogroup " id " \\ilinebr \\{ */"
  opened = NR
}
(/^}  \/\/ namespace (cohort|op)/ && !/detail/) || (/^}$/ && opened && NR - opened < 4) {
  $0 = "/** \\} */ }"
  opened = 0
}
# What only explains a wrong call is no form of the verb.
/^ *\/\/\/ Chosen when a call (fits|does not fit)/ { $0 = "/// \\cond"; explains = 1 }
/^ *}$/ && explains { $0 = $0 " /** \\endcond */"; explains = 0 }
# Doxygen 1.9 gives a friend of a class an anchor that is on no page.
/^ *friend / && !/friend (class|struct) / { sub(/friend /, "") }
# A paragraph for each promise.
/^ *\/\/\/ / {
  gsub(/\*(Requires|Completion|Cancellation|Errors|Throws|Threads|Cost|Source|Example):?\*/,
    "\\ilinebr \\ilinebr &")
}
{ line[NR] = $0 }
# Doxygen would list a member that is defined below its class as a function of the page, too.
END {
  for (i = 1; i <= NR; ++i) {
    if (line[i] !~ /^[A-Za-z][^(]*[A-Za-z0-9_>]::~?(operator[^(]*|[a-z0-9_]+)\(/) continue
    for (before = i - 1; line[before] ~ /^(template|  )/; --before) continue
    if (line[before] == "") line[before] = "/// \\cond"
    else if (before != last) continue
    else sub(/ \/\*\* \\endcond \*\/$/, "", line[before])
    open = 0
    for (last = i; last < NR; ++last) {
      text = line[last]
      open += gsub(/[{]/, "", text) - gsub(/[}]/, "", text)
      if (line[last] ~ /^}/ || (open == 0 && line[last] ~ /[;}]$/)) break
    }
    line[last] = line[last] " /** \\endcond */"
    i = last
  }
  for (i = 1; i <= NR; ++i) print line[i]
}
