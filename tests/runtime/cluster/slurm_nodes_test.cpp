#include "lockstep/runtime/cluster/internal/slurm_nodes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

const ConfigurationValue kSlurmNodeList{.source = "Slurm", .name = "SLURM_STEP_NODELIST"};
const ConfigurationValue kSlurmCounts{.source = "Slurm", .name = "SLURM_STEP_TASKS_PER_NODE"};

using NodeNames = std::vector<std::string>;

TEST(SlurmNodes, ExpandsLists) {
  const std::vector<std::pair<std::string, NodeNames>> cases = {
      {"login", {"login"}},
      {"n1,n2.site", {"n1", "n2.site"}},
      {"n[1-3]", {"n1", "n2", "n3"}},
      {"n[01-03,7]", {"n01", "n02", "n03", "n7"}},
      {"n[8-11]", {"n8", "n9", "n10", "n11"}},
      {"n[008-011]", {"n008", "n009", "n010", "n011"}},
      {"n[5,3,4-4]", {"n5", "n3", "n4"}},
      {"gpu-a[1-2]x[3-4]", {"gpu-a1x3", "gpu-a1x4", "gpu-a2x3", "gpu-a2x4"}},
      {"r[1-2][1-2]-ib", {"r11-ib", "r12-ib", "r21-ib", "r22-ib"}},
      {"n[01-03,7],gpu-a[1-2]x[3-4],login",
       {"n01", "n02", "n03", "n7", "gpu-a1x3", "gpu-a1x4", "gpu-a2x3", "gpu-a2x4", "login"}},
      {"[1-2]", {"1", "2"}},
  };
  for (const auto& [text, names] : cases) {
    EXPECT_EQ(expand_slurm_nodes(text, kSlurmNodeList), names) << text;
  }
}

TEST(SlurmNodes, RefusesWhatIsNoList) {
  const std::string list = "a list of nodes such as n[01-03],login";
  const std::string empty = "a list of nodes without an empty name";
  const std::string numbers = "numbers in brackets such as [01-03,7]";
  const std::string closed = "a list of nodes with closed brackets";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", empty + ", but got '' (wrong at character 1)"},
      {",", empty + ", but got ',' (wrong at character 1)"},
      {"a,", empty + ", but got 'a,' (wrong at character 3)"},
      {"a,,b", empty + ", but got 'a,,b' (wrong at character 3)"},
      {"a b", list + ", but got 'a b' (wrong at character 2)"},
      {"a]", list + ", but got 'a]' (wrong at character 2)"},
      {"a/b", list + ", but got 'a/b' (wrong at character 2)"},
      {"n[", numbers + ", but got 'n[' (wrong at character 3)"},
      {"n[]", numbers + ", but got 'n[]' (wrong at character 3)"},
      {"n[1-]", numbers + ", but got 'n[1-]' (wrong at character 5)"},
      {"n[-1]", numbers + ", but got 'n[-1]' (wrong at character 3)"},
      {"n[3-1]", numbers + ", but got 'n[3-1]' (wrong at character 6)"},
      {"n[1,]", numbers + ", but got 'n[1,]' (wrong at character 5)"},
      {"n[a-b]", numbers + ", but got 'n[a-b]' (wrong at character 3)"},
      {"n[1[2]]", closed + ", but got 'n[1[2]]' (wrong at character 4)"},
      {"n[1-2", closed + ", but got 'n[1-2' (wrong at character 6)"},
      {"n[99999999999]", numbers + ", but got 'n[99999999999]' (wrong at character 3)"},
      {std::string(254, 'n'),
       "names of at most 253 characters, but got '" + std::string(77, 'n') + "...' (wrong at character 255)"},
      // The last name is short, the first one too long.
      {"n[" + std::string(252, '0') + "1,2]", "names of at most 253 characters, but got 'n[" +
                                                  std::string(75, '0') + "...' (wrong at character 259)"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(message_of<InvalidArgument>([&text = text] { expand_slurm_nodes(text, kSlurmNodeList); }),
              "[Slurm] expected SLURM_STEP_NODELIST to be " + message);
  }
}

TEST(SlurmNodes, BoundsTheNumberOfNodes) {
  EXPECT_EQ(expand_slurm_nodes("n[1-65536]", kSlurmNodeList).size(), 65536U);
  EXPECT_EQ(expand_slurm_nodes("n[1-256]x[1-256]", kSlurmNodeList).back(), "n256x256");
  for (const std::string text : {"n[1-65537]", "n[0-2147483647]", "n[1-256]x[1-257]", "n[1-65536],a",
                                 "a,n[1-65536]", "n[1-65535,1-2]", "n[1-256]x[1-256]x[1-2]"}) {
    EXPECT_EQ(message_of<InvalidArgument>([&] { expand_slurm_nodes(text, kSlurmNodeList); }),
              "[Slurm] expected SLURM_STEP_NODELIST to be at most 65536 nodes, but got '" + text + "'");
  }
}

TEST(SlurmNodes, ExpandsCounts) {
  EXPECT_EQ(expand_slurm_counts("4", kSlurmCounts), (std::vector<int>{4}));
  EXPECT_EQ(expand_slurm_counts("2(x3),1", kSlurmCounts), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_slurm_counts("1,2(x2),10(x1)", kSlurmCounts), (std::vector<int>{1, 2, 2, 10}));
}

TEST(SlurmNodes, RefusesWhatIsNoCount) {
  for (const std::string text :
       {"", "0", "x", "-1", "2,", ",2", "2(", "2(x", "2(x)", "2(x3", "2(3)", "2(x0)", "2(x3)1", "2 (x3)",
        "2(x65537)", "1,2(x65536)", "99999999999", "2(x99999999999)"}) {
    EXPECT_EQ(message_of<InvalidArgument>([&] { expand_slurm_counts(text, kSlurmCounts); }),
              "[Slurm] expected SLURM_STEP_TASKS_PER_NODE to be counts such as 2(x3),1 for at most 65536 "
              "nodes, but "
              "got '" +
                  text + "'");
  }
}

}  // namespace
}  // namespace lockstep
