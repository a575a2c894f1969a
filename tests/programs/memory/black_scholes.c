/* European options by Black and Scholes, N of them (third of AMM's benchmarks, after PARSEC's): six loads and one store
   per option in the program's own code, the rest in libm and in spills. */
#include <math.h>

#include "measure.h"

/* The cumulative normal distribution by Abramowitz and Stegun 26.2.17. */
static double cumulative(double x) {
    double t = 1 / (1 + 0.2316419 * fabs(x));
    double tail = exp(-0.5 * x * x) * 0.39894228040143267794 *
                  (t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))));
    return x < 0 ? tail : 1 - tail;
}

KERNEL kernel(double *restrict price, const double *restrict spot, const double *restrict strike,
              const double *restrict rate, const double *restrict volatility, const double *restrict years,
              const int *restrict is_put, int n) {
    for (int i = 0; i < n; i++) {
        double root = volatility[i] * sqrt(years[i]);
        double d1 = (log(spot[i] / strike[i]) + (rate[i] + 0.5 * volatility[i] * volatility[i]) * years[i]) / root;
        double discounted = strike[i] * exp(-rate[i] * years[i]);
        double first = cumulative(d1), second = cumulative(d1 - root);
        price[i] = is_put[i] ? discounted * (1 - second) - spot[i] * (1 - first) : spot[i] * first - discounted * second;
    }
}

int main(int argc, char **argv) {
    int n = argument(argc, argv, 1, 16);
    double *price = array(n, 8), *spot = array(n, 8), *strike = array(n, 8), *rate = array(n, 8);
    double *volatility = array(n, 8), *years = array(n, 8);
    int *is_put = array(n, 4);
    for (int i = 0; i < n; i++) {
        spot[i] = 100, strike[i] = 90 + i % 20, rate[i] = 0.02 + 0.001 * (i % 8), volatility[i] = 0.2 + 0.05 * (i % 4);
        years[i] = 0.5 + 0.5 * (i % 3), is_put[i] = i % 2;
    }
    MEASURE(argument(argc, argv, 2, 0), kernel(price, spot, strike, rate, volatility, years, is_put, n));
    printf("%g\n", price[n / 2]);
    return 0;
}
