import csv
import numpy as np

r = np.random.RandomState(2)
N = 2600
cities = ['ulm', 'bonn', 'kiel', 'trier', 'jena', 'hof']
jobs = ['clerk', 'nurse', 'smith', 'pilot']
with open('credit.csv', 'w', newline='') as f:
    w = csv.writer(f)
    w.writerow(['age', 'income', 'debt', 'months', 'city', 'job', 'default'])
    for _ in range(N):
        age, inc = r.randint(18, 80), r.lognormal(10, 0.5)
        debt, months = r.gamma(2.0, 4000), r.randint(1, 72)
        c, j = r.randint(6), r.randint(4)
        z = 1.5 * debt / inc - 0.02 * (age - 40) + 0.4 * (c == 2) - 0.5 * (j == 1) * (months > 20) - 1.2 + r.randn() * 0.6
        w.writerow([age, '%.2f' % inc, '%.2f' % debt if r.rand() > 0.05 else '', months, cities[c], jobs[j], int(z > 0)])
print('credit.csv written', N)
