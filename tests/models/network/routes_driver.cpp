// Prints the route of every pair of a platform's hosts node-0 to node-(n-1): source, destination, latency, link names.
#include <simgrid/s4u.hpp>
#include <cstdio>
namespace s4u = simgrid::s4u;
int main(int argc, char** argv)
{
  s4u::Engine engine(&argc, argv);
  engine.load_platform(argv[1]);
  const int count = std::atoi(argv[2]);
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++) {
      std::vector<s4u::Link*> links;
      double latency = 0;
      engine.host_by_name("node-" + std::to_string(i))->route_to(engine.host_by_name("node-" + std::to_string(j)), links, &latency);
      std::printf("%d %d %.12g", i, j, latency);
      for (auto* link : links)
        std::printf(" %s", link->get_cname());
      std::printf("\n");
    }
}
