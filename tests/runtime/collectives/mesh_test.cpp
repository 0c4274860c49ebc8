#include "lockstep/runtime/collectives/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::string& text) {
  return message_of<InvalidArgument>([&] { parse_mesh(text); });
}

TEST(Mesh, NumbersTheLastAxisFastest) {
  const Mesh mesh{{"pipeline", 2}, {"data", 3}, {"tensor", 4}};
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_THAT(mesh.coordinates(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(mesh.coordinates(3), ElementsAre(0, 0, 3));
  EXPECT_THAT(mesh.coordinates(4), ElementsAre(0, 1, 0));
  EXPECT_THAT(mesh.coordinates(23), ElementsAre(1, 2, 3));
  EXPECT_THAT(mesh.groups("tensor").at(1), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.groups("data").at(1), ElementsAre(1, 5, 9));
  EXPECT_THAT(mesh.groups("pipeline").back(), ElementsAre(11, 23));
}

TEST(Mesh, GroupsDifferInOneCoordinateAndCoverAllReplicas) {
  const Mesh mesh{{"a", 3}, {"b", 1}, {"c", 2}, {"d", 5}};
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    std::vector<int> covered;
    for (const auto& group : mesh.groups(mesh.axes()[axis].name)) {
      ASSERT_EQ(group.size(), static_cast<size_t>(mesh.axes()[axis].size));
      auto expected = mesh.coordinates(group[0]);
      for (size_t i = 0; i < group.size(); ++i) {
        expected[axis] = static_cast<int>(i);
        EXPECT_EQ(mesh.coordinates(group[i]), expected);
        covered.push_back(group[i]);
      }
    }
    std::sort(covered.begin(), covered.end());
    for (int replica = 0; replica < mesh.size(); ++replica)
      EXPECT_EQ(covered.at(static_cast<size_t>(replica)), replica);
  }
}

TEST(Mesh, GroupsAcrossAnAxisHoldTheSamePartsAlongIt) {
  const Mesh mesh{{"context", 2}, {"shard", 3}, {"tensor", 2}, {"data", 2}};
  const auto across = mesh.groups_across("shard");
  ASSERT_EQ(across.size(), 6U);
  EXPECT_THAT(across[0], ElementsAre(0, 1, 12, 13));
  for (const auto& group : across) {
    const auto first = mesh.coordinates(group.front());
    EXPECT_EQ(group.size(), 4U);
    for (const int rank : group) {
      EXPECT_EQ(mesh.coordinates(rank)[1], first[1]);
      EXPECT_EQ(mesh.coordinates(rank)[2], first[2]) << "other rows of cut parameters";
    }
  }
  EXPECT_THAT((Mesh{{"shard", 3}}.groups_across("shard")),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT((Mesh{{"data", 2}, {"shard", 2}}.groups_across("shard")),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Mesh, RanksOfAReplicaDifferOnModelAxesOnly) {
  const Mesh mesh{{"data", 2}, {"tensor", 3}, {"shard", 2}};
  EXPECT_EQ(mesh.num_replicas(), 4);
  EXPECT_TRUE(mesh.cuts_models());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto own = mesh.coordinates(rank);
    EXPECT_EQ(mesh.replica_of(rank), 2 * own[0] + own[2]);
    EXPECT_EQ(mesh.is_first_of_replica(rank), own[1] == 0);
  }
  EXPECT_THAT(mesh.replica_groups(),
              ElementsAre(ElementsAre(0, 1, 6, 7), ElementsAre(2, 3, 8, 9), ElementsAre(4, 5, 10, 11)));
}

TEST(Mesh, GradientsAreSummedOverDataAndContextAxes) {
  const Mesh mesh{{"data", 2}, {"context", 2}, {"tensor", 2}};
  EXPECT_EQ(mesh.num_replicas(), 2);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    EXPECT_EQ(mesh.replica_of(rank), rank / 4);
    EXPECT_EQ(mesh.is_first_of_replica(rank), rank % 4 == 0);
  }
  EXPECT_THAT(mesh.replica_groups(),
              ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5), ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_THAT(mesh.gradient_groups(), ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
  const Mesh context{{"context", 3}};
  EXPECT_EQ(context.num_replicas(), 1);
  EXPECT_TRUE(context.cuts_models());
  EXPECT_THAT(context.gradient_groups(), ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(Mesh, WithoutModelAxesEachRankIsAReplica) {
  for (const Mesh& mesh : {Mesh{{"data", 2}, {"shard", 3}}, Mesh{{"tensor", 1}, {"data", 6}}}) {
    EXPECT_FALSE(mesh.cuts_models());
    EXPECT_EQ(mesh.num_replicas(), 6);
    EXPECT_THAT(mesh.replica_groups(), ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5)));
    for (int rank = 0; rank < 6; ++rank) {
      EXPECT_EQ(mesh.replica_of(rank), rank);
      EXPECT_TRUE(mesh.is_first_of_replica(rank));
    }
  }
}

TEST(Mesh, PrintsAndParsesRolesOtherThanTheUsual) {
  const Mesh mesh{
      {"data", 2}, {"tensor", 2}, {"inner", 3, AxisRole::kModel}, {"pipeline", 2, AxisRole::kData}};
  EXPECT_EQ(mesh.str(), "data=2,tensor=2,inner=3:model,pipeline=2:data");
  EXPECT_EQ(parse_mesh(mesh.str()), mesh);
  EXPECT_EQ(mesh.num_replicas(), 4);
  EXPECT_EQ(parse_mesh("tensor=2:model"), parse_mesh("tensor=2"));
  const Mesh context{{"context", 2}, {"inner", 2, AxisRole::kContext}, {"other", 2, AxisRole::kModel}};
  EXPECT_EQ(context.str(), "context=2,inner=2:context,other=2:model");
  EXPECT_EQ(parse_mesh(context.str()), context);
  EXPECT_EQ(parse_mesh("context=2:data").num_replicas(), 2);
  for (const char* text : {"data=2:", "data=2:other", "data=2model", "data=:model"})
    EXPECT_THAT(error_of(text), HasSubstr("axes with their sizes")) << text;
}

TEST(Mesh, HasOneAxisOverAllReplicasIfNoneIsAskedFor) {
  EXPECT_EQ(Mesh().over(6), (Mesh{{"data", 6}}));
  EXPECT_EQ((Mesh{{"shard", 6}}.over(6).str()), "shard=6");
}

TEST(Mesh, ParsesWhatItPrints) {
  const Mesh mesh{{"data", 2}, {"shard_2", 16}};
  EXPECT_EQ(mesh.str(), "data=2,shard_2=16");
  EXPECT_EQ(parse_mesh(mesh.str()), mesh);
  EXPECT_TRUE(mesh.has("shard_2"));
  EXPECT_FALSE(mesh.has("shard"));
}

TEST(Mesh, SuggestsSizesThatWouldDo) {
  const auto error_over = [](const std::string& text, int num_replicas) {
    return message_of<InvalidArgument>([&] { parse_mesh(text).over(num_replicas); });
  };
  EXPECT_THAT(error_over("data=2,shard=3", 4),
              HasSubstr("which is 4, but got data=2,shard=3: data=2,shard=2 or "));
  EXPECT_THAT(error_over("shard=3", 4), HasSubstr("but got shard=3: shard=4 would do"));
  EXPECT_THAT(error_over("data=2,shard=3", 1), HasSubstr(": data=1,shard=1 would do"));
  EXPECT_THAT(error_over("a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2", Mesh::kMostReplicas), HasSubstr(" would do"));
}

TEST(Mesh, RefusesMalformedAxes) {
  for (const std::string text :
       {"", "data", "data=", "=2", "data=2,", "data=two", "data=2x", "data= 2", "data=99999999999999999999",
        "data=-1", "data=0", "Data=2", "2d=2", "da ta=2"})
    EXPECT_THAT(error_of(text), HasSubstr("[mesh] expected ")) << text;
  EXPECT_THAT(error_of("data=2,shard=2,data=2"), HasSubstr("each axis once, but got two called data"));
  EXPECT_THAT(error_of("data=0"), HasSubstr("the axis data to have 1 or more replicas, but got 0"));
  EXPECT_THAT(error_of("a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"), HasSubstr("at most 8 axes, but got 9"));
  EXPECT_THAT(error_of("a=1048576,b=2"), HasSubstr("at most 1048576 replicas"));
  EXPECT_THAT(error_of("a=2147483647,b=2147483647,c=2147483647"), HasSubstr("at most 1048576 replicas"));
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_mesh("data=2,shard=2").groups("shards"); }),
              HasSubstr("an axis of the mesh data=2,shard=2, but got 'shards'"));
}

}  // namespace
}  // namespace lockstep
